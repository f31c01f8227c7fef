"""Expectations: the tester `t` on which a user's function declares checks, and a pipeline's quality keywords."""

from __future__ import annotations

import inspect
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NoReturn

from ematix_flow.declare.normalizers.patterns import parse_pattern
from ematix_flow.declare.quality.checks import (
    Between,
    Bound,
    Check,
    Fresh,
    Matches,
    NotNull,
    OneOf,
    RowCount,
    Unique,
    parse_duration,
)
from ematix_flow.declare.table import TableSpec
from ematix_flow.declare.types import ColumnType
from ematix_flow.foundation.clock import in_utc
from ematix_flow.foundation.errors import DeclarationError, FlowError, MissingColumn, check_choice, located
from ematix_flow.foundation.location import Location, caller, is_ours
from ematix_flow.foundation.names import did_you_mean

if TYPE_CHECKING:
    from ematix_flow.declare.pipeline import PipelineOptions

POLICIES = WARN, FAIL = ("warn", "fail")
_INTEGERS = ("small_int", "integer", "big_int")
_NUMBERS = (*_INTEGERS, "float", "double", "numeric")
_TEXTS = ("text", "string")
_MOMENTS = ("timestamp", "timestamp_tz")
_DOCUMENTS = ("json", "jsonb")


class ExpectationError(DeclarationError, TypeError):
    """Raised for a check that does not fit its column, or for `expectations=` that is no function of a tester."""


class UnknownCheck(DeclarationError, AttributeError):
    """Raised for an unknown check; suggests the nearest name."""


@dataclass(frozen=True)
class QualitySpec:
    """The quality keywords of a pipeline, besides the checks themselves."""

    on_failure: str = WARN
    alert_on_warn: bool = False
    freshness_sla: timedelta | None = None
    freshness_column: str | None = None


class Tester:
    """The argument of an `expectations=` function, which declares on it the checks of a load's rows.

    >>> from ematix_flow.declare.types import BigInt, Text
    >>> t = Tester({"id": BigInt(), "city": Text()}, of="shop.people")
    >>> _ = t.column("id").not_null().unique()
    >>> t.row_count(at_least=1)
    >>> [check.name for check in t.checks]
    ['id.not_null', 'id.unique', 'row_count']
    """

    def __init__(self, columns: Mapping[str, ColumnType], *, of: str) -> None:
        self._columns = columns
        self._of = of
        self._checks: list[Check] = []

    @property
    def checks(self) -> tuple[Check, ...]:
        """The declared checks, in order, without duplicates."""
        return tuple(self._checks)

    def column(self, name: str) -> ColumnTester:
        """Return the tester of one column of the table: `t.column("amount").not_null().between(0, 100)`."""
        return ColumnTester(self, name, self._type(name))

    def row_count(self, *, at_least: int | None = None, at_most: int | None = None) -> None:
        """Require a minimum or maximum number of rows in one load."""
        where = caller()
        bounds = [bound for bound in (at_least, at_most) if bound is not None]
        if not bounds:
            raise ExpectationError("row_count needs at_least= or at_most=", where=where)
        for bound in bounds:
            if not isinstance(bound, int) or isinstance(bound, bool) or bound < 0:
                raise ExpectationError(f"row_count takes numbers of rows, not {bound!r}", where=where)
        if len(bounds) == 2 and bounds[0] > bounds[1]:
            raise ExpectationError(f"row_count: at_least={at_least} is above at_most={at_most}", where=where)
        self.add(RowCount(at_least, at_most, where=where))

    def unique(self, columns: Sequence[str]) -> None:
        """Require that no combination of these columns occurs twice in one load; NULLs count as equal."""
        where = caller()
        names = (columns,) if isinstance(columns, str) else tuple(columns)
        if not names:
            raise ExpectationError("unique needs at least one column", where=where, hint='t.unique(["region", "day"])')
        for name in names:
            refuse_documents(name, self._type(name), where)
        self.add(Unique(names, is_group=True, where=where))

    def freshness(self, column: str, *, within: str | int | float | timedelta = "24h") -> None:
        """Require that the newest value, of the load or of the table, is at most `within` old."""
        where = caller()
        self.add(freshness_check(column, self._type(column), within, where))

    def add(self, check: Check) -> None:
        """Add a check unless it is declared already."""
        if check not in self._checks:
            self._checks.append(check)

    def _type(self, name: str) -> ColumnType:
        if name not in self._columns:
            raise MissingColumn(
                f"expectations name {name!r}, which {self._of} does not declare",
                where=caller(),
                hint=did_you_mean(str(name), self._columns),
            )
        return self._columns[name]

    def __getattr__(self, name: str) -> NoReturn:
        raise unknown_check("t", name, ("column", "row_count", "unique", "freshness"))


class ColumnTester:
    """The checks of one column; each method returns the tester, so that calls can be chained."""

    def __init__(self, tester: Tester, name: str, column_type: ColumnType) -> None:
        self._tester = tester
        self._name = name
        self._type = column_type

    def not_null(self) -> ColumnTester:
        """Require that no row has NULL here."""
        return self._with(NotNull(self._name, where=caller()))

    def unique(self) -> ColumnTester:
        """Require that no value occurs twice in one load; NULLs are not compared."""
        where = caller()
        refuse_documents(self._name, self._type, where)
        return self._with(Unique((self._name,), where=where))

    def between(self, low: Bound | None, high: Bound | None) -> ColumnTester:
        """Require that every value lies between two inclusive bounds; None leaves a side open."""
        where = caller()
        if low is None and high is None:
            raise ExpectationError(f"{self._name}.between needs a bound", where=where)
        least, most = (
            None if limit is None else parse_bound(self._name, self._type, limit, where) for limit in (low, high)
        )
        if least is not None and most is not None and least > most:
            raise ExpectationError(f"{self._name}.between: {low} is above {high}", where=where)
        return self._with(Between(self._name, least, most, where=where))

    def regex(self, pattern: str) -> ColumnTester:
        """Require that the pattern is found in every text; `^` and `$` anchor it to the ends."""
        where = caller()
        if self._type.kind not in (*_TEXTS, "uuid"):
            raise _not_for("regex", "texts", self._name, self._type, where)
        if not isinstance(pattern, str):
            raise ExpectationError(f"{self._name}.regex takes a pattern, not {pattern!r}", where=where)
        with located(where):
            parsed = parse_pattern(pattern, may_match_empty=True)
        if parsed.looks_around:
            raise ExpectationError(
                f"the pattern {pattern!r} cannot be used: not every engine can look around",
                where=where,
                hint="say it with several checks",
            )
        return self._with(Matches(self._name, parsed, where=where))

    def is_in(self, values: Sequence[str | int]) -> ColumnTester:
        """Require that every value is one of these."""
        where = caller()
        wanted: type = int if self._type.kind in _INTEGERS else str
        if self._type.kind not in (*_TEXTS, *_INTEGERS, "uuid"):
            raise _not_for("is_in", "texts and whole numbers", self._name, self._type, where)
        if isinstance(values, str) or not values:
            raise ExpectationError(f"{self._name}.is_in needs a list of values", where=where, hint='is_in(["a", "b"])')
        for value in values:
            if not isinstance(value, wanted) or isinstance(value, bool) or "\0" in str(value):
                raise ExpectationError(f"{self._name}.is_in: {value!r} is no {self._type}", where=where)
        listed = [str(value).lower() if self._type.kind == "uuid" else value for value in values]
        return self._with(OneOf(self._name, tuple(dict.fromkeys(listed)), where=where))

    def _with(self, check: Check) -> ColumnTester:
        self._tester.add(check)
        return self

    def __getattr__(self, name: str) -> NoReturn:
        raise unknown_check(f"t.column({self._name!r})", name, ("not_null", "unique", "between", "regex", "is_in"))


def quality_from(options: PipelineOptions) -> QualitySpec:
    """Return a pipeline's quality keywords, checked."""
    check_choice("on_quality_failure", options.on_quality_failure, POLICIES)
    sla = None if options.freshness_sla is None else parse_duration(options.freshness_sla)
    if sla is not None and not sla:
        raise DeclarationError("freshness_sla=0 would always be breached", hint='for example freshness_sla="24h"')
    if options.freshness_column is not None and sla is None:
        raise DeclarationError("freshness_column needs freshness_sla", hint='for example freshness_sla="24h"')
    return QualitySpec(options.on_quality_failure, bool(options.alert_on_quality_warn), sla, options.freshness_column)


def checks_of(table: TableSpec, expectations: Any, freshness_column: str | None,
              freshness_sla: str | int | float | timedelta | None, where: Location | None,
              promises: Sequence[Check] = ()) -> tuple[Check, ...]:  # fmt: skip
    """Return `promises`, the checks of the user's function and the freshness check, without duplicates."""
    columns = {column.name: column.type for column in table.columns}
    tester = Tester(columns, of=table.qualified)
    for check in promises:
        tester.add(check)
    if expectations is not None:
        _call_expectations(expectations, tester, where)
    if freshness_column is not None and freshness_sla is not None:
        if freshness_column not in columns:
            raise MissingColumn(
                f"freshness_column names {freshness_column!r}, which {table.qualified} does not declare",
                hint=did_you_mean(freshness_column, columns),
            )
        tester.add(freshness_check(freshness_column, columns[freshness_column], freshness_sla, where))
    return tester.checks


def promises_of(table: TableSpec) -> tuple[Check, ...]:
    """Return the checks that a table's declaration implies: columns without NULL, and unique keys.

    >>> from ematix_flow.declare.types import BigInt, Column, Text
    >>> columns = (Column(BigInt(), False, True, "id"), Column(Text(), True, False, "city"))
    >>> [check.name for check in promises_of(TableSpec("shop", "people", columns))]
    ['id.not_null', 'unique_group(id)']
    """
    documents = {column.name for column in table.columns if column.type.kind in _DOCUMENTS}
    keys = [key for key in (table.primary_key, *table.unique) if key and documents.isdisjoint(key)]
    filled = [NotNull(column.name, where=table.where) for column in table.columns if not column.nullable]
    return (*filled, *(Unique(tuple(key), is_group=True, where=table.where) for key in keys))


def _call_expectations(expectations: Any, tester: Tester, where: Location | None) -> None:
    if not callable(expectations) or inspect.iscoroutinefunction(expectations) or not _takes_one(expectations):
        raise ExpectationError(
            f"expectations= takes a function of one argument, the tester, not {expectations!r}",
            where=where,
            hint='def expectations(t): t.column("id").not_null()',
        )
    try:
        expectations(tester)
    except FlowError as exc:
        raise exc.at(where) from exc
    except Exception as exc:
        raise DeclarationError(
            f"expectations raised {type(exc).__name__}: {exc}", where=_line_of(exc) or where, hint="look at that line"
        ) from exc


def _takes_one(function: Callable[..., Any]) -> bool:
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        return False
    except ValueError:  # a builtin without a known signature
        return True
    return True


def _line_of(exc: BaseException) -> Location | None:
    """Return the innermost line of the user's code in an error's traceback, else None."""
    location, trace = None, exc.__traceback__
    while trace is not None:
        if not is_ours(trace.tb_frame.f_code.co_filename):
            location = Location(trace.tb_frame.f_code.co_filename, trace.tb_lineno)
        trace = trace.tb_next
    return location


def freshness_check(
    column: str, kind: ColumnType, within: str | int | float | timedelta, where: Location | None
) -> Fresh:
    """Return the check of a column's newest value."""
    if kind.kind not in (*_MOMENTS, "date"):
        raise _not_for("freshness", "dates and timestamps", column, kind, where)
    with located(where):
        return Fresh(column, parse_duration(within), where=where)


def parse_bound(column: str, kind: ColumnType, value: Any, where: Location | None) -> Any:
    """Return a bound as a value of the column's type; raise ExpectationError if it is none."""
    parsed: Any = None
    if kind.kind in _NUMBERS:
        parsed = _number(value, kind.kind)
    elif kind.kind in _TEXTS:
        parsed = value if isinstance(value, str) and "\0" not in value else None
    elif kind.kind == "date":
        parsed = _date(value)
    elif kind.kind in _MOMENTS:
        parsed = _moment(value)
    else:
        raise _not_for("between", "numbers, dates, timestamps and texts", column, kind, where)
    if parsed is None:
        raise ExpectationError(f"{column}.between: {value!r} is no {kind}", where=where)
    return parsed


def refuse_documents(column: str, kind: ColumnType, where: Location | None) -> None:
    """Raise ExpectationError for a document column: engines do not agree on equality of documents."""
    if kind.kind in _DOCUMENTS:
        raise _not_for("unique", "columns whose values can be compared", column, kind, where)


def unknown_check(of: str, name: str, valid: Sequence[str]) -> UnknownCheck:
    """Return the error for an unknown check."""
    if name.startswith("_"):  # looked up by Python itself or by a tool, which expect a plain AttributeError
        raise AttributeError(name)
    return UnknownCheck(f"{of} has no check {name!r}", where=caller(), hint=did_you_mean(name, valid))


def _not_for(check: str, what: str, column: str, kind: ColumnType, where: Location | None) -> ExpectationError:
    return ExpectationError(f"{check} goes with {what}, and {column} is a {kind}", where=where)


def _number(value: Any, kind: str) -> int | float | Decimal | None:
    if not isinstance(value, (int, float, Decimal)) or isinstance(value, bool) or not math.isfinite(value):
        return None
    if kind != "float":
        return value
    try:  # the value that the column stores: engines compare in four bytes or in eight
        return float(struct.unpack("<f", struct.pack("<f", float(value)))[0])
    except OverflowError:
        return None


def _date(value: Any) -> date | None:
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    try:
        return date.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None


def _moment(value: Any) -> datetime | None:
    """Return the value as an instant in UTC, None if it is none; a time without a zone is UTC."""
    try:
        parsed = datetime.fromisoformat(value.replace("Z", "+00:00")) if isinstance(value, str) else value
    except ValueError:
        return None
    if isinstance(parsed, date) and not isinstance(parsed, datetime):
        parsed = datetime(parsed.year, parsed.month, parsed.day)
    return in_utc(parsed) if isinstance(parsed, datetime) else None
