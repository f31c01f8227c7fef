"""Chooses the path of the rows: inside the database, or through Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ematix_flow.contract.ddl import is_lossless
from ematix_flow.contract.read import SourceColumn
from ematix_flow.declare.types import Column, ColumnType, Numeric
from ematix_flow.foundation.errors import MissingColumn, PlanError
from ematix_flow.foundation.location import Location
from ematix_flow.foundation.names import did_you_mean

SAME_DB = "same_db"
CROSS_DB = "cross_db"


@dataclass(frozen=True)
class PathChoice:
    """The chosen path and the reason."""

    path: str
    reason: str


def choose_path(
    *,
    force: str | None,
    same_system: bool,
    obstacle: str | None,
    source: Sequence[SourceColumn],
    columns: Sequence[Column],
    stored: Mapping[str, ColumnType | None],
) -> PathChoice:
    """Choose the path inside the database where possible; raise `PlanError` if the forced path is not possible."""
    reason = obstacle or (None if same_system else "source and target are different systems")
    if reason is None:
        reason = cast_obstacle(source, columns, stored)
    if force == SAME_DB:
        if reason is not None:
            raise PlanError(f'force_path="same_db" is not possible: {reason}', hint="remove force_path")
        return PathChoice(SAME_DB, "forced")
    if force == CROSS_DB:
        return PathChoice(CROSS_DB, "forced")
    if reason is None:
        return PathChoice(SAME_DB, "source and target are the same database")
    return PathChoice(CROSS_DB, reason)


def cast_obstacle(
    source: Sequence[SourceColumn], columns: Sequence[Column], stored: Mapping[str, ColumnType | None]
) -> str | None:
    """Return why a column needs a cast, None if every source type is the stored one or converts alike everywhere."""
    source_columns = {column.name: column for column in source}
    for column in columns:
        source_column = source_columns.get(column.name)
        if source_column is None or (source_column.type is not None and source_column.type == stored.get(column.name)):
            continue
        if not _assigns_alike(source_column.type, column.type):
            return f"{column.name} needs a cast from {source_column.native} to {column.type}"
    return None


def _assigns_alike(values: ColumnType | None, wanted: ColumnType) -> bool:
    if values is None:
        return False
    if isinstance(values, Numeric) and isinstance(wanted, Numeric):
        return True
    if (values.kind, wanted.kind) == ("timestamp", "timestamp_tz"):  # every session is in UTC
        return True
    texts = ("text", "string")
    if values.kind in texts and wanted.kind in texts:
        return True
    return values.kind == wanted.kind or is_lossless(values, wanted)


def require_columns(
    available: Sequence[str], columns: Sequence[Column], *, derived: set[str], table: str, where: Location | None
) -> None:
    """Raise `MissingColumn` unless the source provides every declared column by name."""
    for column in columns:
        if column.name not in available and column.name not in derived:
            raise MissingColumn(
                f"the source gives no column {column.name!r}, which {table} declares",
                where=where,
                hint=f"{did_you_mean(column.name, available)} select it AS {column.name}, or use column_map=",
                column=column.name,
            )
