"""Statistics of a table: its number of rows, and for each column its range, its NULLs and a sample."""

from __future__ import annotations

import datetime
import math
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from typing import Any, TypeAlias

Value: TypeAlias = "int | float | str"
"""Dates are days and timestamps microseconds since 1970, decimals are doubles, booleans 0 and 1."""

INTEGER, DECIMAL, REAL, TEXT, DATE, TIMESTAMP, BOOLEAN, OTHER = (
    "integer", "decimal", "real", "text", "date", "timestamp", "boolean", "other",
)  # fmt: skip
NUMBERS = (INTEGER, DECIMAL, REAL)
DISCRETE = (INTEGER, DATE, BOOLEAN)
MOST_TEXT = 100
"""The number of characters of a text that are kept."""
_WIDTHS = {INTEGER: 8, DECIMAL: 8, REAL: 8, TIMESTAMP: 8, DATE: 4, BOOLEAN: 1}
_WIDE = 20
_OF_A_ROW = 8
_EPOCH = datetime.date(1970, 1, 1)
_MIDNIGHT = datetime.datetime(1970, 1, 1)


@dataclass(frozen=True)
class ColumnStats:
    """Statistics of one column; None means unknown. Samples of one table's columns come from the same rows."""

    kind: str
    low: Value | None = None
    high: Value | None = None
    nulls: int | None = None
    distinct: float | None = None
    sample: tuple[Value | None, ...] = ()

    @property
    def is_spread(self) -> bool:
        """Return whether the sample spans the column's range; the first rows of a sorted file's row groups may not."""
        seen = [value for value in self.sample if value is not None and not isinstance(value, str)]
        low, high = self.low, self.high
        if not seen or low is None or high is None or isinstance(low, str) or isinstance(high, str) or high <= low:
            return True
        return (max(seen) - min(seen)) * 2 >= high - low


@dataclass(frozen=True)
class TableStats:
    """Statistics of one table: the kinds of all its columns, and column statistics for the requested ones."""

    rows: int
    size: int
    kinds: Mapping[str, str] = field(default_factory=dict)
    columns: Mapping[str, ColumnStats] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of all columns."""
        return tuple(self.kinds)

    def bytes_of(self, names: Collection[str]) -> float:
        """Return the size in bytes that Spark estimates for some columns, by the usual widths of their types."""
        widths = {name: _WIDTHS.get(kind, _WIDE) for name, kind in self.kinds.items()}
        taken = sum(widths[name] for name in names if name in widths)
        return self.size * (taken + _OF_A_ROW) / (sum(widths.values()) + _OF_A_ROW)

    def to_plain(self) -> dict[str, Any]:
        """Return the statistics as plain data."""
        return asdict(self)

    @classmethod
    def from_plain(cls, kept: Any) -> TableStats | None:
        """Return the statistics from plain data, None if it is damaged."""
        try:
            columns = {str(name): _column(about) for name, about in kept["columns"].items()}
            kinds = {str(name): str(kind) for name, kind in kept["kinds"].items()}
            rows, size = int(kept["rows"]), int(kept["size"])
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            return None
        return cls(rows, size, kinds, columns) if rows >= 0 and size >= 0 else None


def plain_value(value: Any) -> Value | None:
    """Return a file's value in its comparable form, None for one without it: NaN, bytes, nested values.

    >>> plain_value(datetime.date(1970, 1, 2)), plain_value(Decimal("1.5")), plain_value(float("nan"))
    (1, 1.5, None)
    """
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, str):
        return value[:MOST_TEXT]
    if isinstance(value, datetime.datetime):
        moment = value.astimezone(datetime.timezone.utc) if value.tzinfo is not None else value
        return (moment.replace(tzinfo=None) - _MIDNIGHT) // datetime.timedelta(microseconds=1)
    if isinstance(value, datetime.date):
        return (value - _EPOCH).days
    if isinstance(value, Decimal):
        value = float(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, int) else None


def _column(about: Mapping[str, Any]) -> ColumnStats:
    nulls, distinct = about["nulls"], about["distinct"]
    return ColumnStats(
        str(about["kind"]),
        _plain_to_value(about["low"]),
        _plain_to_value(about["high"]),
        None if nulls is None else int(nulls),
        None if distinct is None else float(distinct),
        tuple(_plain_to_value(value) for value in about["sample"]),
    )


def _plain_to_value(value: Any) -> Value | None:
    if value is None or isinstance(value, (int, float, str)):
        return value
    raise ValueError(value)
