"""Quality checks as SQL: conditions for failing rows, grouping keys for uniqueness, the newest value."""

from __future__ import annotations

from decimal import Decimal

from ematix_flow.declare import checks as said
from ematix_flow.declare.types import ColumnType
from ematix_flow.expressions.dialects import renderer_for
from ematix_flow.expressions.literals import known_dialect
from ematix_flow.expressions.tree import (
    AsText,
    Column,
    Compare,
    Condition,
    Either,
    Expression,
    IsNull,
    Literal,
    Not,
    OneOf,
    Searches,
    known_kind,
)

_TEXTS = ("text", "string")
_DOUBLES = ("float", "double")


def broken(check: said.RowCheck, column: str, kind: ColumnType, dialect: str) -> str:
    """Return a condition that holds for rows that violate the check; `column` is its column, as SQL.

    >>> from ematix_flow.declare.types import Integer
    >>> broken(said.Between("n", 0, 9), 's."n"', Integer(), "postgres")
    '(s."n" < 0 OR s."n" > 9)'
    """
    found = _condition(check, Column(column, known_kind(kind.kind)), kind, known_dialect(dialect))
    return renderer_for(dialect).condition(found)


def told_apart(column: str, kind: ColumnType, dialect: str) -> str:
    """Return the column as a grouping key: texts by their characters, independent of the collation."""
    if kind.kind not in _TEXTS:
        return column
    written = {"mysql": f"CAST({column} AS BINARY)", "sqlite": f"{column} COLLATE BINARY"}
    return written.get(known_dialect(dialect), column)


def newest(column: str, dialect: str) -> str:
    """Return SQL for the greatest value of a date or time column, as text; the session is in UTC."""
    return renderer_for(dialect).as_text(f"MAX({column})")


def _condition(check: said.RowCheck, column: Column, kind: ColumnType, dialect: str) -> Condition:
    match check:
        case said.NotNull():
            return IsNull(column)
        case said.Between(_, low, high):
            x: Expression = AsText(column) if kind.kind in _TEXTS else column
            parts: list[Condition] = []
            if low is not None:
                parts.append(Compare(x, "<", _bound(low, kind, dialect)))
            if high is not None:
                parts.append(Compare(x, ">", _bound(high, kind, dialect)))
            return Either(tuple(parts))
        case said.Matches(_, pattern):
            return Not(Searches(AsText(column), pattern))
        case said.OneOf(_, values):
            return Not(OneOf(AsText(column), tuple(str(value) for value in values)))


def _bound(value: said.Bound, kind: ColumnType, dialect: str) -> Expression:
    if dialect == "duckdb" and kind.kind in _DOUBLES and isinstance(value, (int, float, Decimal)):
        return Column(f"CAST('{float(value)!r}' AS DOUBLE)")  # a long decimal would become a neighbouring double
    return Literal(value)
