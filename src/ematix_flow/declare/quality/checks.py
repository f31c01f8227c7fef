"""The checks on the rows of a load, as frozen values with the names that reports use."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import ClassVar, TypeAlias

from ematix_flow.declare.normalizers.patterns import Pattern
from ematix_flow.foundation.errors import DeclarationError
from ematix_flow.foundation.location import Location

Bound: TypeAlias = int | float | Decimal | date | datetime | str

_DURATION = re.compile(r"\s*(\d{1,12})\s*([smhd])\s*")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


@dataclass(frozen=True)
class _Placed:
    """The base of all checks: the source line that declares the check."""

    where: Location | None = field(default=None, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True)
class _ColumnCheck(_Placed):
    """The base of checks of the values of one column."""

    column: str
    rule: ClassVar[str]

    @property
    def name(self) -> str:
        """The check's name in reports."""
        return f"{self.column}.{self.rule}"


@dataclass(frozen=True)
class NotNull(_ColumnCheck):
    """A check that no row has NULL in the column."""

    rule = "not_null"

    def __str__(self) -> str:
        return f"{self.column} is not NULL"


@dataclass(frozen=True)
class Between(_ColumnCheck):
    """A check that every value lies between two inclusive bounds; None leaves a side open, and NULL passes."""

    low: Bound | None
    high: Bound | None
    rule = "between"

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            bound, word = (self.high, "at most") if self.low is None else (self.low, "at least")
            return f"{self.column} is {word} {bound}"
        return f"{self.column} is between {self.low} and {self.high}"


@dataclass(frozen=True)
class Matches(_ColumnCheck):
    """A check that the pattern is found in every text; `^` and `$` anchor it to the ends, and NULL passes."""

    pattern: Pattern
    rule = "regex"

    def __str__(self) -> str:
        return f"{self.column} matches {self.pattern.source!r}"


@dataclass(frozen=True)
class OneOf(_ColumnCheck):
    """A check that every value is in the list; NULL passes."""

    values: tuple[str | int, ...]
    rule = "enum"

    def __str__(self) -> str:
        return f"{self.column} is one of {', '.join(map(repr, self.values))}"


@dataclass(frozen=True)
class Unique(_Placed):
    """A check for duplicates. In a group of columns NULLs count as equal; in a single column they do not count."""

    columns: tuple[str, ...]
    is_group: bool = False

    @property
    def name(self) -> str:
        """The check's name in reports."""
        return f"unique_group({', '.join(self.columns)})" if self.is_group else f"{self.columns[0]}.unique"

    def __str__(self) -> str:
        return f"{', '.join(self.columns)} {'are' if len(self.columns) > 1 else 'is'} unique"


@dataclass(frozen=True)
class RowCount(_Placed):
    """A check of the number of rows of a load; None leaves a side open."""

    at_least: int | None = None
    at_most: int | None = None
    name = "row_count"

    def __str__(self) -> str:
        bounds = [("at least", self.at_least), ("at most", self.at_most)]
        return " and ".join(f"{word} {bound:,}" for word, bound in bounds if bound is not None) + " rows"


@dataclass(frozen=True)
class Fresh(_Placed):
    """A check that the newest value of the column is at most `within` old when the run begins."""

    column: str
    within: timedelta

    @property
    def name(self) -> str:
        """The check's name in reports."""
        return f"freshness({self.column})"

    def __str__(self) -> str:
        return f"the newest {self.column} is at most {format_duration(self.within)} old"


RowCheck: TypeAlias = NotNull | Between | Matches | OneOf
"""Checks that each row passes or fails on its own."""
Check: TypeAlias = RowCheck | Unique | RowCount | Fresh


def parse_duration(value: str | int | float | timedelta) -> timedelta:
    """Return a duration from `"90s"`, `"15m"`, `"24h"`, `"7d"`, from seconds or from a timedelta.

    >>> parse_duration("24h"), parse_duration(90)
    (datetime.timedelta(days=1), datetime.timedelta(seconds=90))
    """
    try:
        length = _parsed_length(value)
    except OverflowError:
        length = None
    if length is None:
        raise DeclarationError(
            f"{value!r} is not a length of time", hint='write "90s", "15m", "24h" or "7d", seconds, or a timedelta'
        )
    if length < timedelta(0):
        raise DeclarationError(f"a length of time is not negative: {value!r}")
    return length


def format_duration(length: timedelta) -> str:
    """Return a duration in its largest whole unit.

    >>> format_duration(timedelta(hours=36)), format_duration(timedelta(days=2))
    ('36h', '2d')
    """
    seconds = length.total_seconds()
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:g}s"


def _parsed_length(value: object) -> timedelta | None:
    if isinstance(value, timedelta):
        return value
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return timedelta(seconds=value) if math.isfinite(value) else None
    if isinstance(value, str) and value.strip().isascii() and value.strip().isdigit():
        return timedelta(seconds=int(value))
    parts = _DURATION.fullmatch(value) if isinstance(value, str) else None
    return timedelta(**{_UNITS[parts[2]]: int(parts[1])}) if parts else None
