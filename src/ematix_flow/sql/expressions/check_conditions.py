"""Quality checks as SQL: conditions for failing rows, grouping keys for uniqueness, the newest value."""

from __future__ import annotations

from decimal import Decimal

from ematix_flow.declare.quality import checks
from ematix_flow.declare.types import ColumnType
from ematix_flow.sql.expressions import tree
from ematix_flow.sql.expressions.literals import known_dialect
from ematix_flow.sql.expressions.select import renderer_for

_TEXTS = ("text", "string")
_DOUBLES = ("float", "double")


def failing_condition(check: checks.RowCheck, column: str, kind: ColumnType, dialect: str) -> str:
    """Return a condition that holds for rows that violate the check; `column` is its column, as SQL.

    >>> from ematix_flow.declare.types import Integer
    >>> failing_condition(checks.Between("n", 0, 9), 's."n"', Integer(), "postgres")
    '(s."n" < 0 OR s."n" > 9)'
    """
    condition = _condition(check, tree.ColumnExpr(column, tree.known_kind(kind.kind)), kind, known_dialect(dialect))
    return renderer_for(dialect).condition(condition)


def grouping_key(column: str, kind: ColumnType, dialect: str) -> str:
    """Return the column as a grouping key: texts by their characters, independent of the collation."""
    if kind.kind not in _TEXTS:
        return column
    written = {"mysql": f"CAST({column} AS BINARY)", "sqlite": f"{column} COLLATE BINARY"}
    return written.get(known_dialect(dialect), column)


def newest_value(column: str, dialect: str) -> str:
    """Return SQL for the greatest value of a date or time column, as text; the session is in UTC."""
    return renderer_for(dialect).as_text(f"MAX({column})")


def _condition(check: checks.RowCheck, column: tree.ColumnExpr, kind: ColumnType, dialect: str) -> tree.Condition:
    match check:
        case checks.NotNull():
            return tree.IsNullExpr(column)
        case checks.Between(_, low, high):
            x: tree.Expression = tree.AsTextExpr(column) if kind.kind in _TEXTS else column
            parts: list[tree.Condition] = []
            if low is not None:
                parts.append(tree.CompareExpr(x, "<", _bound(low, kind, dialect)))
            if high is not None:
                parts.append(tree.CompareExpr(x, ">", _bound(high, kind, dialect)))
            return tree.EitherExpr(tuple(parts))
        case checks.Matches(_, pattern):
            return tree.NotExpr(tree.SearchesExpr(tree.AsTextExpr(column), pattern))
        case checks.OneOf(_, values):
            return tree.NotExpr(tree.OneOfExpr(tree.AsTextExpr(column), tuple(str(value) for value in values)))


def _bound(value: checks.Bound, kind: ColumnType, dialect: str) -> tree.Expression:
    if dialect == "duckdb" and kind.kind in _DOUBLES and isinstance(value, (int, float, Decimal)):
        return tree.ColumnExpr(
            f"CAST('{float(value)!r}' AS DOUBLE)"
        )  # a long decimal would become a neighbouring double
    return tree.LiteralExpr(value)
