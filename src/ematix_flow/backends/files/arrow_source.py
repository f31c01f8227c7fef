"""Plain queries of one Parquet table as parts of the Arrow lane."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ematix_flow.backends.files.layout import BATCH, FileLayout, read_layout
from ematix_flow.backends.files.published_batches import batches_of
from ematix_flow.contract.lane import ArrowParts, Carried
from ematix_flow.contract.read import ReadPlan, SourceColumn
from ematix_flow.dataplane.parquet_parts import ParquetFiles, parquet_files, parquet_parts, type_obstacle
from ematix_flow.dataplane.type_mapping import arrow_type, column_type, spark_type
from ematix_flow.declare.types import Text
from ematix_flow.families.lake.source import table_name_parts
from ematix_flow.foundation.lazy_imports import exp
from ematix_flow.sql.linear_query import parse_linear
from ematix_flow.storage.paths import LakePath, require_local


@dataclass(frozen=True)
class PlainRead:
    """Unchanged columns of one table's files, without expressions or filters."""

    files: ParquetFiles
    names: tuple[str, ...]
    carried: Carried

    def parts(self, parallelism: int) -> ArrowParts:
        """Return row groups distributed over the tasks."""
        return parquet_parts(self.files, self.names, self.carried, parallelism=parallelism)


Locate = Callable[[tuple[str, ...]], LakePath]
LayoutOf = Callable[[LakePath], FileLayout | None]


@dataclass(frozen=True)
class _PlainQuery:
    """A query of unchanged columns of one table, with the table's files."""

    layout: FileLayout | None
    files: ParquetFiles
    columns: tuple[tuple[str, str], ...]
    """(name in the result, name in the table) of each column."""


def plain_plan(query: str, locate: Locate, layout_of: LayoutOf, *, parallelism: int) -> ReadPlan | None:
    """Return the plan of a plain read from the files' footers; None where only Spark can determine the result."""
    plain = _plain(query, locate, layout_of)
    if isinstance(plain, str):
        return None
    kinds = {field.name: column_type(field.type) for field in plain.files.schema}
    if plain.layout:
        kinds = {column.name: column_type(arrow_type(column.type)) for column in plain.layout.columns}
    columns: list[SourceColumn] = []
    for shown, name in plain.columns:
        kind = kinds.get(name)
        if kind is None or shown in (column.name for column in columns):
            return None
        columns.append(SourceColumn(shown, spark_type(kind).lower(), kind))
    return ReadPlan(query, tuple(columns), parallelism, "row groups of the files", plain.files.rows)


def plain_read(plan: ReadPlan, locate: Locate, layout_of: LayoutOf) -> PlainRead | str:
    """Return the read without Spark, or the reason why Spark must do it."""
    plain = _plain(plan.query, locate, layout_of)
    if isinstance(plain, str):
        return plain
    carried = tuple((column.name, column.type or Text()) for column in plan.columns)
    if any(column.type is None for column in plan.columns):
        return "Spark turns nested columns into JSON"
    names = tuple(name for _, name in plain.columns)
    if len(names) != len(carried):
        return "Spark names the columns of the query"
    return type_obstacle(plain.files, names, carried) or PlainRead(plain.files, names, carried)


def _plain(query: str, locate: Locate, layout_of: LayoutOf) -> _PlainQuery | str:
    parsed = parse_linear(query, "spark")
    chosen = _selected_columns(parsed.tree) if parsed else None
    if parsed is None or chosen is None:
        return "Spark runs the query over the files"
    path = require_local(locate(table_name_parts(parsed.tree.find(exp.Table))))
    layout = layout_of(path)
    files = table_files(path, layout)
    stored = files if isinstance(files, str) else parquet_files(files)
    if isinstance(stored, str):
        return stored
    whole = [column.name for column in layout.columns] if layout else list(stored.schema.names)
    shown = [item.alias_or_name for item in parsed.tree.expressions] if chosen else whole
    return _PlainQuery(layout, stored, tuple(zip(shown, chosen or whole, strict=True)))


def selected_columns_tree(query: str) -> Any | None:
    """Return the tree of a query that only selects columns of one table, None where it does more."""
    parsed = parse_linear(query, "spark")
    return parsed.tree if parsed is not None and _selected_columns(parsed.tree) is not None else None


def _selected_columns(tree: Any) -> list[str] | None:
    """Return the names of the columns a query selects, an empty list for all, None where it does more."""
    if tree.args.get("where"):
        return None
    if [type(item) for item in tree.expressions] == [exp.Star]:
        return []
    names = [item.this if isinstance(item, exp.Alias) else item for item in tree.expressions]
    return [item.name for item in names] if all(isinstance(item, exp.Column) for item in names) else None


def table_files(path: Path, layout: FileLayout | None) -> list[Path] | str:
    """Return the Parquet files of a table, or the reason why they cannot be read as one."""
    return _own_files(path, layout) if layout else _foreign_files(path)


def _own_files(path: Path, layout: FileLayout) -> list[Path] | str:
    if layout.partition_by:
        return "its partitions are folders, which Spark reads"
    batches = [require_local(batch) for batch in batches_of(path)]
    if any(not (read_layout(batch) or layout).reads_like(layout) for batch in batches):
        return "its batches were written with different columns"
    return [file for batch in batches for file in sorted(batch.glob("*.parquet"))]


def _foreign_files(path: Path) -> list[Path] | str:
    if path.is_file():
        return [path]
    inside = [item for item in sorted(path.rglob("*")) if not _is_hidden(item.relative_to(path))]
    if any("=" in item.name and not item.name.startswith(BATCH) for item in inside if item.is_dir()):
        return "its partitions are folders, which Spark reads"
    return [item for item in inside if item.is_file()]


def _is_hidden(relative: Path) -> bool:
    return any(part.startswith((".", "_")) for part in relative.parts)
