"""The shape of a target table: the declared columns plus those that a strategy adds."""

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
    """The declared columns (which the source provides) and the whole table (which the target stores)."""

    declared: TableSpec
    table: TableSpec

    @property
    def stored_columns(self) -> tuple[str, ...]:
        """Return the names of the columns that the source provides and the target stores."""
        return tuple(name for name in self.declared.column_names if name in self.table.column_names)

    def column(self, name: str) -> Column:
        """Return the column of this name from the target table, else from the staged columns."""
        return (self.table if name in self.table.column_names else self.declared).column(name)

    @property
    def added(self) -> tuple[Column, ...]:
        """Return the columns that the strategy adds."""
        names = set(self.declared.column_names)
        return tuple(column for column in self.table.columns if column.name not in names)


def _staged_only_column(strategy: Strategy) -> str | None:
    """Return the column that is staged but not stored: an event time that the table does not declare."""
    return strategy.event_time if isinstance(strategy, Scd2) and not strategy.keeps_event_time else None


def shape_of(declared: TableSpec, strategy: Strategy) -> TargetShape:
    """Return the target's shape under a strategy."""
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
    kept = tuple(column for column in declared.columns if column.name != _staged_only_column(strategy))
    columns = kept + tuple(column for column in added if column.name not in known)
    unique = declared.unique
    if isinstance(strategy, Scd2):
        unique = tuple((*group, VALID_FROM) for group in unique)
        if not declared.primary_key:  # a version is identified by key and VALID_FROM, which is not unique alone
            columns = tuple(replace(column, primary_key=False) for column in columns)
    return TargetShape(declared, replace(declared, columns=columns, unique=unique))
