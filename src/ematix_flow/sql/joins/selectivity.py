"""Estimates how many rows of a table its conditions leave, and how many pairs of rows a join condition leaves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ematix_flow.foundation.lazy_imports import exp
from ematix_flow.sql.joins import table_statistics
from ematix_flow.sql.joins.predicate_evaluation import CannotEstimate, PredicateEvaluator, RowFunction
from ematix_flow.sql.joins.table_statistics import ColumnStats, TableStats

UNKNOWN = 1 / 3
_LIKE = 0.1
_EQUAL = 0.05
_ENOUGH = 10
"""The minimum number of matching sampled rows for a count; a lower number only proves that there are few."""
_RANGES = ("LT", "LTE", "GT", "GTE")
_TURNED = {"LT": "GT", "LTE": "GTE", "GT": "LT", "GTE": "LTE"}


def rows_left(table: TableStats, conditions: Sequence[Any]) -> float:
    """Return the estimated number of rows that meet all conditions; at least one.

    Conditions are counted together on the sampled rows, which covers their correlation.
    """
    estimate = _RowEstimate(table)
    counted: list[RowFunction] = []
    share, apart = 1.0, 1.0
    for condition in conditions:
        function = estimate.evaluated(condition)
        if function is None:
            share *= estimate.share(condition)
        else:
            counted.append(function)
            apart *= estimate.share(condition)
    if counted:
        hits, seen = estimate.hits(counted)
        share *= hits / seen if hits >= _ENOUGH else min(apart, 2 * _ENOUGH / seen)
    return max(1.0, table.rows * share)


def share_of(table: TableStats, condition: Any) -> float:
    """Return the share of a table's rows that meets one condition."""
    return _RowEstimate(table).share(condition)


class _RowEstimate:
    """Estimates over the columns of one table, by their lower-case names."""

    def __init__(self, table: TableStats) -> None:
        columns = {name.lower(): about for name, about in table.columns.items()}
        self._columns, self._count = columns, table.rows
        self._evaluator = PredicateEvaluator(columns)
        size = max((len(about.sample) for about in columns.values()), default=0)
        sampled = {name: about.sample for name, about in columns.items() if len(about.sample) == size}
        self._rows = [{name: values[number] for name, values in sampled.items()} for number in range(size)]

    def evaluated(self, condition: Any) -> RowFunction | None:
        """Return the evaluation of a condition on sampled rows, None where the sample does not cover it."""
        names = {column.name.lower() for column in condition.find_all(exp.Column)}
        if not self._rows or any(name not in self._rows[0] or not self._columns[name].is_spread for name in names):
            return None
        try:
            return self._evaluator.evaluated(condition)
        except CannotEstimate:
            return None

    def hits(self, conditions: Sequence[RowFunction]) -> tuple[int, int]:
        """Return the number of sampled rows that meet all conditions, and the number of sampled rows."""
        count = sum(1 for row in self._rows if all(_holds(condition, row) for condition in conditions))
        return count, len(self._rows)

    def share(self, condition: Any) -> float:
        """Return the share of the rows that meets a condition: counted, or by its form if too few samples match."""
        function = self.evaluated(condition)
        if function is None:
            return self._by_form(condition)
        hits, seen = self.hits([function])
        if hits >= _ENOUGH:
            return hits / seen
        return min(self._by_form(condition), 2 * _ENOUGH / seen)

    def _by_form(self, node: Any) -> float:
        if isinstance(node, exp.Paren):
            return self.share(node.this)
        if isinstance(node, exp.And):
            return self.share(node.this) * self.share(node.expression)
        if isinstance(node, exp.Or):
            return 1 - (1 - self.share(node.this)) * (1 - self.share(node.expression))
        if node.find(exp.Select):
            return 1.0  # a subquery may leave all rows
        if isinstance(node, exp.Not):
            return 1 - self.share(node.this)
        if isinstance(node, exp.Like):
            return _LIKE
        return self._of_values(node)

    def _of_values(self, node: Any) -> float:
        """Return the share for a condition that compares a column with values."""
        about = self._columns.get(node.this.name.lower()) if isinstance(node.this, exp.Column) else None
        if isinstance(node, exp.EQ):
            if about is None and isinstance(node.expression, exp.Column):
                about = self._columns.get(node.expression.name.lower())
            return _equal(about)
        if isinstance(node, exp.NEQ):
            return 1 - _equal(about)
        if isinstance(node, exp.In):
            return min(1.0, len(node.expressions) * _equal(about))
        if isinstance(node, exp.Is):
            return self._null(about)
        if isinstance(node, exp.Between):
            return self._between(node.this, node.args["low"], node.args["high"])
        name = type(node).__name__
        if name in _RANGES:
            return self._range(name, node.this, node.expression)
        return UNKNOWN

    def _null(self, about: ColumnStats | None) -> float:
        if about is None or about.nulls is None or not self._count:
            return UNKNOWN
        return min(1.0, about.nulls / self._count)

    def _between(self, column: Any, low: Any, high: Any) -> float:
        above, below = self._range("GTE", column, low), self._range("LTE", column, high)
        return max(0.0, above + below - 1) if above + below > 1 else above * below

    def _range(self, name: str, left: Any, right: Any) -> float:
        """Return the share of a column's range on one side of a value, with all values equally likely."""
        if not isinstance(left, exp.Column):
            if not isinstance(right, exp.Column):
                return UNKNOWN
            name, left, right = _TURNED[name], right, left
        about = self._columns.get(left.name.lower())
        value = self._number(about, left, right)
        if about is None or value is None or not _is_number(about.low) or not _is_number(about.high):
            return UNKNOWN
        low, high = float(about.low or 0), float(about.high or 0)
        below = 0.5 if high <= low else (value - low) / (high - low)
        below = min(1.0, max(0.0, below))
        return below if name in ("LT", "LTE") else 1 - below

    def _number(self, about: ColumnStats | None, column: Any, value: Any) -> float | None:
        """Return a constant in the comparable form of the column's values."""
        if about is None or about.kind == table_statistics.TEXT:
            return None
        try:
            whole = PredicateEvaluator({column.name.lower(): ColumnStats(about.kind, sample=(0,))})
            constant = whole.aligned(exp.EQ(this=column.copy(), expression=value.copy()))
            return float(constant)
        except (CannotEstimate, TypeError, ValueError, OverflowError):
            return None


def _holds(condition: RowFunction, row: Mapping[str, Any]) -> bool:
    try:
        return bool(condition.of(row))
    except (CannotEstimate, TypeError, ValueError, OverflowError, ArithmeticError):
        return False


def _equal(about: ColumnStats | None) -> float:
    return 1 / max(1.0, about.distinct) if about is not None and about.distinct else _EQUAL


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float))


def joined_share(pairs: Iterable[tuple[float | None, float | None]], rows: tuple[float, float]) -> float | None:
    """Return the share of all pairs of rows that an equality of columns leaves, from the distinct values of each.

    None if nothing is known. Several columns have at most as many distinct values as the table has rows; in that case
    the smaller of both numbers counts, because such columns are a key to which the other table refers.
    """
    left = right = 1.0
    count = 0
    for one, other in pairs:
        if one is None and other is None:
            return None
        left *= max(1.0, one or other or 1.0)
        right *= max(1.0, other or one or 1.0)
        count += 1
    bounded = min(left, max(1.0, rows[0])), min(right, max(1.0, rows[1]))
    return 1 / (min(bounded) if count > 1 and bounded != (left, right) else max(bounded))
