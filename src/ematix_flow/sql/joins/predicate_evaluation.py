"""Evaluates simple conditions of one table on sampled rows, to estimate how many rows they leave."""

from __future__ import annotations

import calendar
import datetime
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from ematix_flow.foundation.lazy_imports import exp
from ematix_flow.sql.joins import table_statistics
from ematix_flow.sql.joins.table_statistics import ColumnStats, plain_value

Row: TypeAlias = "Mapping[str, Any]"
_DAY = 86_400_000_000
_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
_MICROSECONDS = {"WEEK": 7 * _DAY, "DAY": _DAY, "HOUR": 3_600_000_000, "MINUTE": 60_000_000, "SECOND": 1_000_000}
_COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "EQ": operator.eq, "NEQ": operator.ne, "LT": operator.lt, "LTE": operator.le, "GT": operator.gt, "GTE": operator.ge,
}  # fmt: skip
_COMPUTED: dict[str, Callable[[Any, Any], Any]] = {"Add": operator.add, "Sub": operator.sub, "Mul": operator.mul}


class CannotEstimate(Exception):
    """An expression that is not supported here."""


@dataclass(frozen=True)
class RowFunction:
    """A function from a row to the value of an expression, and the kind of that value."""

    of: Callable[[Row], Any]
    kind: str
    is_constant: bool = False


class PredicateEvaluator:
    """Evaluates expressions over the columns of one table, by their lower-case names."""

    def __init__(self, columns: Mapping[str, ColumnStats]) -> None:
        self._columns = columns

    def evaluated(self, node: Any) -> RowFunction:
        """Return the function of an expression; raise CannotEstimate for unsupported expressions."""
        handler = getattr(self, f"of_{type(node).__name__.lower()}", None)
        if handler is not None:
            return handler(node)  # type: ignore[no-any-return]
        name = type(node).__name__
        if name in _COMPARED:
            return self._compared(_COMPARED[name], self.evaluated(node.this), self.evaluated(node.expression))
        if name in _COMPUTED:
            return self._computed(name, node)
        raise CannotEstimate(name)

    def aligned(self, equality: Any) -> Any:
        """Return the right side of `column = constant` as a value of the column; raise CannotEstimate if it is no constant."""
        _, right = _comparable_pair(self.evaluated(equality.this), self.evaluated(equality.expression))
        if not right.is_constant:
            raise CannotEstimate("a column")
        return right.of({})

    def of_paren(self, node: Any) -> RowFunction:
        return self.evaluated(node.this)

    def of_column(self, node: Any) -> RowFunction:
        name = node.name.lower()
        known = self._columns.get(name)
        if known is None or known.kind == table_statistics.OTHER or not known.sample:
            raise CannotEstimate(name)
        return RowFunction(lambda row: row[name], known.kind)

    def of_literal(self, node: Any) -> RowFunction:
        if node.is_string:
            return _constant(node.name, table_statistics.TEXT)
        return _constant(float(node.name), table_statistics.REAL)

    def of_boolean(self, node: Any) -> RowFunction:
        return _constant(int(node.this), table_statistics.BOOLEAN)

    def of_neg(self, node: Any) -> RowFunction:
        inner = self.evaluated(node.this)
        if inner.kind not in table_statistics.NUMBERS:
            raise CannotEstimate(inner.kind)
        return RowFunction(lambda row: _null_safe(operator.neg, inner.of(row)), inner.kind, inner.is_constant)

    def of_cast(self, node: Any) -> RowFunction:
        inner = self.evaluated(node.this)
        kinds = {"DATE": table_statistics.DATE, "TIMESTAMP": table_statistics.TIMESTAMP, "TIMESTAMPTZ": table_statistics.TIMESTAMP,
                 "TIMESTAMPNTZ": table_statistics.TIMESTAMP}  # fmt: skip
        kind = kinds.get(node.to.this.name)
        if kind is None or not inner.is_constant or inner.kind != table_statistics.TEXT:
            raise CannotEstimate(node.to.this.name)
        return _constant(_moment(inner.of({}), kind), kind)

    def of_and(self, node: Any) -> RowFunction:
        left, right = self.evaluated(node.this), self.evaluated(node.expression)
        return RowFunction(lambda row: _both(left.of(row), right.of(row)), table_statistics.BOOLEAN)

    def of_or(self, node: Any) -> RowFunction:
        left, right = self.evaluated(node.this), self.evaluated(node.expression)
        return RowFunction(lambda row: _either(left.of(row), right.of(row)), table_statistics.BOOLEAN)

    def of_not(self, node: Any) -> RowFunction:
        inner = self.evaluated(node.this)
        return RowFunction(lambda row: _null_safe(operator.not_, inner.of(row)), table_statistics.BOOLEAN)

    def of_is(self, node: Any) -> RowFunction:
        if not isinstance(node.expression, exp.Null):
            raise CannotEstimate("IS")
        inner = self.evaluated(node.this)
        return RowFunction(lambda row: inner.of(row) is None, table_statistics.BOOLEAN)

    def of_between(self, node: Any) -> RowFunction:
        value = self.evaluated(node.this)
        low = self._compared(operator.ge, value, self.evaluated(node.args["low"]))
        high = self._compared(operator.le, value, self.evaluated(node.args["high"]))
        return RowFunction(lambda row: _both(low.of(row), high.of(row)), table_statistics.BOOLEAN)

    def of_in(self, node: Any) -> RowFunction:
        if not node.expressions:  # a subquery
            raise CannotEstimate("IN")
        value = self.evaluated(node.this)
        every = [self._compared(operator.eq, value, self.evaluated(item)) for item in node.expressions]
        if not all(self.evaluated(item).is_constant for item in node.expressions):
            raise CannotEstimate("IN")

        def found(row: Row) -> bool | None:
            return None if value.of(row) is None else any(item.of(row) for item in every)

        return RowFunction(found, table_statistics.BOOLEAN)

    def of_like(self, node: Any) -> RowFunction:
        value, pattern = self.evaluated(node.this), self.evaluated(node.expression)
        if value.kind != table_statistics.TEXT or pattern.kind != table_statistics.TEXT or not pattern.is_constant:
            raise CannotEstimate("LIKE")
        parts = {"%": ".*", "_": "."}
        written = re.compile("".join(parts.get(sign, re.escape(sign)) for sign in pattern.of({})), re.DOTALL)
        return RowFunction(
            lambda row: _null_safe(lambda text: bool(written.fullmatch(text)), value.of(row)), table_statistics.BOOLEAN
        )

    def of_substring(self, node: Any) -> RowFunction:
        value, start = self.evaluated(node.this), node.args.get("start")
        length = node.args.get("length")
        if (
            value.kind != table_statistics.TEXT
            or start is None
            or not start.is_int
            or (length is not None and not length.is_int)
        ):
            raise CannotEstimate("substring")
        first = int(start.to_py())
        if first < 1:
            raise CannotEstimate("substring")
        last = first - 1 + int(length.to_py()) if length is not None else None
        return RowFunction(
            lambda row: _null_safe(lambda text: text[first - 1 : last], value.of(row)), table_statistics.TEXT
        )

    def _compared(self, compare: Callable[[Any, Any], bool], left: RowFunction, right: RowFunction) -> RowFunction:
        left, right = _comparable_pair(left, right)

        def result(row: Row) -> bool | None:
            one, other = left.of(row), right.of(row)
            return None if one is None or other is None else compare(one, other)

        return RowFunction(result, table_statistics.BOOLEAN)

    def _computed(self, name: str, node: Any) -> RowFunction:
        left = self.evaluated(node.this)
        if isinstance(node.expression, exp.Interval):
            return _shift_date(left, node.expression, 1 if name == "Add" else -1) if name != "Mul" else _refuse(name)
        right = self.evaluated(node.expression)
        if left.kind not in table_statistics.NUMBERS or right.kind not in table_statistics.NUMBERS:
            raise CannotEstimate(name)
        compute = _COMPUTED[name]

        def result(row: Row) -> Any:
            one, other = left.of(row), right.of(row)
            return None if one is None or other is None else compute(one, other)

        return RowFunction(result, table_statistics.REAL, left.is_constant and right.is_constant)


def _refuse(what: str) -> RowFunction:
    raise CannotEstimate(what)


def _constant(value: Any, kind: str) -> RowFunction:
    return RowFunction(lambda row: value, kind, is_constant=True)


def _null_safe(compute: Callable[[Any], Any], value: Any) -> Any:
    return None if value is None else compute(value)


def _both(left: Any, right: Any) -> bool | None:
    if left is False or right is False or left == 0 or right == 0:
        return False
    return None if left is None or right is None else True


def _either(left: Any, right: Any) -> bool | None:
    if left or right:
        return True
    return None if left is None or right is None else False


def _comparable_pair(left: RowFunction, right: RowFunction) -> tuple[RowFunction, RowFunction]:
    """Return both sides in forms that compare as in Spark; raise CannotEstimate for other kinds."""
    if left.kind == right.kind or (left.kind in table_statistics.NUMBERS and right.kind in table_statistics.NUMBERS):
        return left, right
    times = (table_statistics.DATE, table_statistics.TIMESTAMP)
    if left.kind in times and right.kind == table_statistics.TEXT and right.is_constant:
        return left, _constant(_moment(right.of({}), left.kind), left.kind)
    if right.kind in times and left.kind == table_statistics.TEXT and left.is_constant:
        return _constant(_moment(left.of({}), right.kind), right.kind), right
    if left.kind in times and right.kind in times:
        return _as_timestamp(left), _as_timestamp(right)
    raise CannotEstimate(f"{left.kind} and {right.kind}")


def _as_timestamp(function: RowFunction) -> RowFunction:
    if function.kind == table_statistics.TIMESTAMP:
        return function
    return RowFunction(
        lambda row: _null_safe(lambda days: days * _DAY, function.of(row)),
        table_statistics.TIMESTAMP,
        function.is_constant,
    )


def _moment(text: str, kind: str) -> int:
    try:
        parsed = datetime.datetime.fromisoformat(text.strip())
    except ValueError as exc:
        raise CannotEstimate(text) from exc
    if parsed.tzinfo is not None:
        parsed = parsed.astimezone(datetime.timezone.utc)
    return int(plain_value(parsed.date() if kind == table_statistics.DATE else parsed) or 0)


def _shift_date(value: RowFunction, interval: Any, sign: int) -> RowFunction:
    """Return a date or timestamp plus or minus an interval."""
    unit = interval.args.get("unit")
    try:
        count = sign * int(interval.this.name)
    except (AttributeError, ValueError) as exc:
        raise CannotEstimate("INTERVAL") from exc
    name = unit.name.upper().rstrip("S") if unit is not None else ""
    if value.kind not in (table_statistics.DATE, table_statistics.TIMESTAMP) or (
        name not in _MONTHS and name not in _MICROSECONDS
    ):
        raise CannotEstimate("INTERVAL")
    scale = 1 if value.kind == table_statistics.DATE else _DAY

    def later(moment: int) -> int:
        if name in _MONTHS:
            days, rest = divmod(moment, scale)
            return _months_later(days, count * _MONTHS[name]) * scale + rest
        return moment + count * _MICROSECONDS[name] * scale // _DAY

    return RowFunction(lambda row: _null_safe(later, value.of(row)), value.kind, value.is_constant)


def _months_later(days: int, months: int) -> int:
    try:
        day = datetime.date(1970, 1, 1) + datetime.timedelta(days=days)
        year, month = divmod(day.year * 12 + day.month - 1 + months, 12)
        last = calendar.monthrange(year, month + 1)[1]
        return int(plain_value(datetime.date(year, month + 1, min(day.day, last))) or 0)
    except (ValueError, OverflowError) as exc:
        raise CannotEstimate("INTERVAL") from exc
