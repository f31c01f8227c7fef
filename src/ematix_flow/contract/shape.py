"""The table as it stands in the target: declared columns plus those a strategy needs."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ematix_flow.declare.strategy import Changes, Deletes, Merge, Scd2, Strategy
from ematix_flow.declare.table import TableSpec
from ematix_flow.declare.types import UUID, Boolean, Bytes, Column, TimestampTZ

LOADED_AT = "_loaded_at"
BATCH_ID = "_batch_id"
DELETED_AT = "_deleted_at"
VALID_FROM = "valid_from"
VALID_TO = "valid_to"
IS_CURRENT = "is_current"
ROW_HASH = "row_hash"


@dataclass(frozen=True)
class TargetShape:
    """Declared columns (what the source gives) and the whole table (what the target holds)."""

    declared: TableSpec
    table: TableSpec

    @property
    def kept(self) -> tuple[str, ...]:
        """Names of the columns that the source gives and the target holds."""
        return tuple(name for name in self.declared.column_names if name in self.table.column_names)

    def column(self, name: str) -> Column:
        """The column of that name, of the target or of what is staged for it."""
        return (self.table if name in self.table.column_names else self.declared).column(name)

    @property
    def added(self) -> tuple[Column, ...]:
        """Columns the strategy adds."""
        names = set(self.declared.column_names)
        return tuple(column for column in self.table.columns if column.name not in names)


def _only_read(strategy: Strategy) -> str | None:
    """The column that is staged and not kept: an event time that the table does not declare."""
    return strategy.event_time if isinstance(strategy, Scd2) and not strategy.keeps_event_time else None


def shape_of(declared: TableSpec, strategy: Strategy) -> TargetShape:
    """The target's shape under a strategy."""
    added: list[Column] = []
    if isinstance(strategy, Scd2):
        added += [
            Column(TimestampTZ(), nullable=False, primary_key=True, name=VALID_FROM),
            Column(TimestampTZ(), nullable=True, name=VALID_TO),
            Column(Boolean(), nullable=False, name=IS_CURRENT),
            Column(Bytes(), nullable=False, name=ROW_HASH),
        ]
    if isinstance(strategy, Merge) and strategy.deletes is Deletes.SOFT:
        added.append(Column(TimestampTZ(), nullable=True, name=DELETED_AT))
    if isinstance(strategy, Changes) and strategy.soft is not None:
        added.append(Column(TimestampTZ(), nullable=True, name=strategy.soft))
    added += [
        Column(TimestampTZ(), nullable=False, name=LOADED_AT),
        Column(UUID(), nullable=False, name=BATCH_ID),
    ]
    known = set(declared.column_names)
    kept = tuple(column for column in declared.columns if column.name != _only_read(strategy))
    columns = kept + tuple(column for column in added if column.name not in known)
    unique = declared.unique
    if isinstance(strategy, Scd2):
        unique = tuple((*group, VALID_FROM) for group in unique)
        if not declared.primary_key:  # versions are told apart by key and start
            columns = tuple(replace(column, primary_key=False) for column in columns)
    return TargetShape(declared, replace(declared, columns=columns, unique=unique))
