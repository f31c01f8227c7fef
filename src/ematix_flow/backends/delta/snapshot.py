"""Plain Delta tables on local disks, read from their log without a Spark job.

Spark finds the columns and files of a table by jobs over its log. The library delta-rs reads the same from a table
without special features in a few milliseconds, and the table's files are plain Parquet.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from ematix_flow.backends.delta.delta_rs import is_addressable, is_plain, left_to_spark, open_table
from ematix_flow.dataplane.spark_session import active_session, is_active_session_sail
from ematix_flow.foundation.lazy_imports import f, pa, t
from ematix_flow.storage.paths import LakePath, engine_uri

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SMALL_BYTES = 4 * 1024 * 1024
SMALL_ROWS = 100_000  # a limit on bytes is not enough: columns with one value compress to almost nothing
SMALL_FILES = 32  # Spark lists more paths than this by a job
# Settings that do not change how rows are read and written.
_PROPERTIES = {
    "delta.logRetentionDuration", "delta.deletedFileRetentionDuration", "delta.checkpointInterval",
    "delta.autoOptimize", "delta.autoOptimize.autoCompact", "delta.minReaderVersion", "delta.minWriterVersion",
}  # fmt: skip
_FEATURE = "delta.feature."
_ADDRESS = set("*?{}:")  # in a path these mean a pattern, or another location
_MARKS = ('"__', '"void"')  # in the JSON of columns with a meaning beyond their types


@dataclass(frozen=True)
class DeltaSnapshot:
    """One version of a table, opened by the library."""

    folder: Path
    opened: Any

    @cached_property
    def columns(self) -> str:
        """Return the columns as JSON."""
        return str(self.opened.schema().to_json())

    @cached_property
    def adds(self) -> Any:
        """Return what the log records about each file, as an Arrow table."""
        return pa.table(self.opened.get_add_actions())

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """Return the files' paths, relative to the table's folder; files of another table have an absolute address."""
        return tuple(sorted(unquote(path) for path in self.adds.column("path").to_pylist()))

    @property
    def size(self) -> int:
        """Return the bytes of all files."""
        return sum(self.adds.column("size_bytes").to_pylist())

    @property
    def rows(self) -> int | None:
        """Return the number of rows, None where the log does not count those of each file."""
        if not self.paths:
            return 0
        counts = self.adds.column("num_records").to_pylist() if "num_records" in self.adds.column_names else [None]
        return None if None in counts else sum(counts)

    @property
    def schema(self) -> t.StructType:
        """Return the columns, with their comments."""
        return t.StructType.fromJson(json.loads(self.columns))

    @property
    def is_small(self) -> bool:
        """Return whether one task may read and write the whole table."""
        if len(self.paths) > SMALL_FILES or self.size > SMALL_BYTES or self.rows is None or self.rows > SMALL_ROWS:
            return False
        return not any(_ADDRESS & set(path) or path.startswith("/") for path in (*self.paths, str(self.folder)[1:]))

    @property
    def has_plain_columns(self) -> bool:
        """Return whether no column pads or truncates values, and NULL is refused only in whole columns."""
        if any(mark in self.columns for mark in _MARKS):
            return False
        return all(":false" not in _compact(field["type"]) for field in json.loads(self.columns)["fields"])

    def read(self) -> DataFrame:
        """Return the rows as one partition, so that nothing has to be exchanged to compare them."""
        columns = self.schema
        if not self.paths:
            nothing = active_session().sql("SELECT 1 AS n WHERE false")
            nulls = (f.lit(None).cast(field.dataType).alias(field.name) for field in columns.fields)
            return nothing.select(*nulls).coalesce(1)
        return (
            active_session()
            .read.schema(columns)
            .parquet(*(engine_uri(self.folder / path) for path in self.paths))
            .coalesce(1)
        )


def snapshot_of(table: LakePath, *, with_files: bool = False) -> DeltaSnapshot | None:
    """Return the newest version of a table, `with_files` also with its file list; None where only Spark can read it."""
    if not isinstance(table, Path) or is_active_session_sail() or not is_addressable(table):
        return None
    with left_to_spark(table):
        delta_table = open_table(table)
        if is_plain(delta_table) and _has_only_known_settings(delta_table.metadata().configuration):
            snapshot = DeltaSnapshot(table, delta_table)
            # Both are read here, where an error leaves the table to Spark.
            return snapshot if snapshot.columns and (not with_files or snapshot.adds is not None) else None
    return None


def _has_only_known_settings(properties: Any) -> bool:
    """Return whether no setting changes the form of files or commits; features are checked in the protocol."""
    own = {name for name in properties or {} if name.startswith("delta.") and not name.startswith(_FEATURE)}
    return own <= _PROPERTIES


def _compact(kind: Any) -> str:
    return json.dumps(kind, separators=(",", ":"))
