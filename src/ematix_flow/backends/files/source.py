"""The files source: Spark SQL on the folders and files below the connection's path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ematix_flow.backends.files.arrow_source import (
    PlainRead,
    plain_plan,
    plain_read,
    selected_columns_tree,
    table_files,
)
from ematix_flow.backends.files.csv_types import can_declare, declared_value
from ematix_flow.backends.files.external_files import check_options, read_external, read_texts
from ematix_flow.backends.files.inference import Stamp
from ematix_flow.backends.files.layout import FileLayout, FileLayouts
from ematix_flow.backends.files.published_batches import read_table
from ematix_flow.contract.backend import DeclaredColumns
from ematix_flow.contract.lane import ArrowParts, ArrowSource, Carried
from ematix_flow.contract.read import ReadPlan
from ematix_flow.declare.connections import ObjectStoreLocalConnection, ObjectStoreS3Connection
from ematix_flow.declare.connections.lakes import format_from_path
from ematix_flow.declare.types import Column
from ematix_flow.families.lake.client import LakeClient
from ematix_flow.families.lake.source import LakeSource, table_name_parts
from ematix_flow.foundation.errors import RunFailed
from ematix_flow.foundation.lazy_imports import exp
from ematix_flow.sql.joins.file_statistics import TableFiles
from ematix_flow.sql.linear_query import without_semicolon
from ematix_flow.sql.spark_text import quote
from ematix_flow.storage.os_errors import translated_os_errors
from ematix_flow.storage.paths import LakePath, LakeRoot
from ematix_flow.storage.s3_path import S3Path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    FilesConnection = ObjectStoreLocalConnection | ObjectStoreS3Connection


class FilesSource(LakeSource, ArrowSource, DeclaredColumns):
    """A reader of queries on folders of files; tables written by ematix-flow have their declared types."""

    def __init__(self, connection: FilesConnection, read_options: Mapping[str, Any] | None = None) -> None:
        resolved = connection.resolved()
        super().__init__(connection.name, LakeRoot.of(resolved))
        self._format = resolved.format
        self._options = dict(read_options or {})
        self._layouts = FileLayouts(self._place)
        self._opened: dict[LakePath, tuple[Stamp, DataFrame]] = {}
        self._declared: Mapping[str, Column] = {}
        self.what = f"a folder or file of {self._format}"
        check_options(self._format, self._options)

    def declare(self, columns: Sequence[Column]) -> None:
        """Use the declared types for CSV columns in queries that only select columns."""
        if self._format == "csv" and can_declare(columns):
            self._declared = {column.name: column for column in columns}

    def _run(self, query: str, spark: SparkSession, open_until: ExitStack) -> DataFrame:
        path = self._selected_from(query) if self._declared else None
        if path is None:
            return super()._run(query, spark, open_until)
        frame = self._over(query, spark, open_until, lambda table_path: read_texts(table_path, self._options))
        names: list[str] = frame.columns
        if len(set(names)) < len(names):  # the plan refuses duplicate names
            return frame
        known = self._declared
        return frame.selectExpr(*(declared_value(known[name]) if name in known else quote(name) for name in names))

    def _selected_from(self, query: str) -> LakePath | None:
        """Return the external file whose columns a query selects unchanged, None where it does more."""
        tree = selected_columns_tree(query)
        path = self.locate(table_name_parts(tree.find(exp.Table))) if tree is not None else None
        return path if path is not None and self._layout(path) is None else None

    def find(self, path: LakePath) -> LakePath | None:
        """Return the data of `raw.events`: the folder raw/events, or the file raw/events.csv (.csv.gz, .tsv, …)."""
        if path.is_dir():
            return path if self._holds_data(path) else None
        if path.is_file() or not path.parent.is_dir():
            return None
        return next((item for item in _files_named(path) if format_from_path(item.name) == self._format), None)

    def plan_without_spark(self, query: str, *, parallelism: int) -> ReadPlan | None:
        """Return the plan of a plain query from Parquet footers; None where Spark is needed."""
        if self._format != "parquet" or self._options or not self._place.is_local:
            return None
        with translated_os_errors(self._place.root):
            return plain_plan(without_semicolon(query), self.locate, self._layout, parallelism=parallelism)

    def arrow_columns(self, plan: ReadPlan) -> Carried | str:
        """Return the columns of a plain query of one Parquet table, or the reason why Spark must run it."""
        plain = self._plain(plan)
        return plain if isinstance(plain, str) else plain.carried

    def arrow_parts(self, plan: ReadPlan, open_until: ExitStack) -> ArrowParts:
        """Return row groups distributed over the tasks."""
        plain = self._plain(plan)
        if isinstance(plain, str):
            raise RunFailed(f"the files changed since the run was planned: {plain}", hint="run it again")
        return plain.parts(plan.splits)

    def _plain(self, plan: ReadPlan) -> PlainRead | str:
        if self._format != "parquet":
            return f"Spark reads {self._format}"
        if self._options:
            return "read options are Spark's"
        if not self._place.is_local:
            return "Spark reads buckets"
        return plain_read(plan, self.locate, self._layout)

    def _layout(self, path: LakePath) -> FileLayout | None:
        return self._layouts.read(self._place.names_of(path))

    def files(self, path: LakePath) -> TableFiles | None:
        if self._format != "parquet" or self._options or not isinstance(path, Path):
            return None
        layout = self._layout(path)
        stamp, files = _stamp(path), table_files(path, layout)
        names = tuple(column.name for column in layout.columns) if layout else None
        return None if isinstance(files, str) else TableFiles(stamp, tuple(files), names)

    def open(self, path: LakePath) -> DataFrame:
        layout = self._layout(path)
        if layout is not None:
            return read_table(layout, path)
        # Inferring types reads the files; a plan and its read share the result.
        stamp = _stamp(path)
        known = self._opened.get(path)
        if known is None or known[0] != stamp:
            known = (stamp, read_external(self._format, path, self._options, stamp))
            self._opened[path] = known
        return known[1]

    def _holds_data(self, folder: LakePath) -> bool:
        """Return whether the folder belongs to a table, and does not just contain other tables."""
        if self._layouts.path(self._place.names_of(folder)).exists():
            return True
        inside = [item for item in folder.iterdir() if not item.name.startswith((".", "_"))]
        return any(item.is_file() or "=" in item.name for item in inside)


class FilesClient(LakeClient):
    """A client that executes queries on folders of files, and no other statements."""

    title = "a folder of files"

    def __init__(self, connection: FilesConnection) -> None:
        super().__init__(FilesSource(connection))


def _files_named(path: LakePath) -> list[LakePath]:
    """Return the files beside a path that have its name and any extension."""
    if isinstance(path, S3Path):
        listed = path.bucket.listed(f"{path.key}.")
        return [S3Path(path.bucket, item.key) for item in listed if "/" not in item.key[len(path.key) :]]
    return sorted(item for item in path.parent.glob("*") if item.is_file() and item.name.split(".")[0] == path.name)


def _stamp(path: LakePath) -> Stamp:
    """Return a stamp of the files: names, times and sizes; in a bucket ETags, and the bucket's address in the names."""
    if isinstance(path, S3Path):
        return frozenset((f"{path.bucket.endpoint}/{path.bucket.name}/{item.key}", item.tag, item.size)
                         for item in path.bucket.listed(path.key))  # fmt: skip
    with translated_os_errors(path):
        files = [path] if path.is_file() else [item for item in path.rglob("*") if item.is_file()]
        known = [(str(item.absolute()), item.stat()) for item in files]
        return frozenset((name, about.st_mtime_ns, about.st_ctime_ns, about.st_size) for name, about in known)
