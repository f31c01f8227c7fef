"""The state of a target table and the steps that bring it to its declared shape."""

from __future__ import annotations

from dataclasses import dataclass

from ematix_flow.declare.table import TableSpec
from ematix_flow.declare.types import Column, ColumnType, Numeric, String

_WIDER: dict[str, tuple[str, ...]] = {
    "small_int": ("integer", "big_int", "float", "double"),
    "integer": ("big_int", "double"),
    "float": ("double",),
    "string": ("text",),
}
_DIGITS = {"small_int": 5, "integer": 10, "big_int": 19}


@dataclass(frozen=True)
class ColumnState:
    """A column as the system reports it; `type` is None when no declared type corresponds to its native type."""

    name: str
    native: str
    type: ColumnType | None
    nullable: bool


@dataclass(frozen=True)
class TableState:
    """The current state of a table."""

    columns: tuple[ColumnState, ...]
    primary_key: tuple[str, ...] = ()
    rows: int | None = None


@dataclass(frozen=True)
class CreateTable:
    """Creation of the table, and of its schema."""

    table: TableSpec

    def __str__(self) -> str:
        return f"+ create {self.table.qualified}"


@dataclass(frozen=True)
class AddColumn:
    """Addition of a nullable column."""

    column: Column

    def __str__(self) -> str:
        return f"+ {self.column.name} {self.column.type} NULL"


@dataclass(frozen=True)
class ChangeType:
    """Change of a column's type; lossless unless the user enabled schema evolution."""

    column: Column
    before: ColumnState

    def __str__(self) -> str:
        return f"~ {self.column.name} {self.before.native} → {self.column.type}"


@dataclass(frozen=True)
class DropNotNull:
    """Removal of NOT NULL from a column that the declaration does not fill."""

    column: ColumnState

    def __str__(self) -> str:
        return f"~ {self.column.name} {self.column.native} may be NULL"


DdlStep = CreateTable | AddColumn | ChangeType | DropNotNull


@dataclass(frozen=True)
class Difference:
    """One difference (drift) as readable text, with the step that would repair it if there is one."""

    text: str
    repair: DdlStep | None = None
    harmless: bool = False


@dataclass(frozen=True)
class DdlPlan:
    """The steps to apply, and the differences that remain."""

    steps: tuple[DdlStep, ...] = ()
    drift: tuple[Difference, ...] = ()


def is_lossless(before: ColumnType, after: ColumnType) -> bool:
    """Return whether every value of `before` is also a value of `after`."""
    if before == after or after.kind in _WIDER.get(before.kind, ()):
        return True
    if isinstance(before, String) and isinstance(after, String):
        return after.length >= before.length
    if isinstance(after, Numeric):
        if isinstance(before, Numeric):
            return after.scale >= before.scale and after.precision - after.scale >= before.precision - before.scale
        return after.precision - after.scale >= _DIGITS.get(before.kind, 99)
    return False
