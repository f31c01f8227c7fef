"""Python functions that SQLite lacks; register them on every connection that runs rendered expressions."""

from __future__ import annotations

import hashlib
import re
import sqlite3
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from decimal import ROUND_HALF_UP, Decimal, localcontext
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)(?:[ T](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,6})\d*)?)?)? ?(Z|[+-]\d\d:?(?:\d\d)?)?\Z",
    re.ASCII,
)
_DIGITS = 120


def register(connection: sqlite3.Connection) -> None:
    """Register the functions on a connection; each returns NULL if an argument is NULL."""
    functions: dict[str, tuple[int, Callable[..., Any]]] = {
        "flow_lower": (1, lambda text: str(text).lower()),
        "flow_upper": (1, lambda text: str(text).upper()),
        "flow_matches": (2, lambda text, pattern: int(_compiled(pattern).fullmatch(str(text)) is not None)),
        "flow_searches": (2, lambda text, pattern: int(_compiled(pattern).search(str(text)) is not None)),
        "flow_like": (2, lambda text, pattern: int(_like(pattern).fullmatch(str(text)) is not None)),
        "flow_regex_replace": (4, lambda text, pattern, new, count: _compiled(pattern).sub(new, str(text), count)),
        "flow_sha256": (1, _sha256),
        "flow_decimal": (2, _decimal),
        "flow_round": (2, _round),
        "flow_compare": (3, _compare),
        "flow_nullif": (3, lambda value, other, meaning: None if _compare(value, other, meaning) == 0 else value),
        "flow_instant": (2, lambda local, offset: _instant_text(_read_time(local + offset))),
        "flow_to_zone": (2, _to_zone),
        "flow_from_zone": (2, _from_zone),
        "flow_date_trunc": (3, _date_trunc),
    }
    for name, (arguments, function) in functions.items():
        connection.create_function(name, arguments, _null_in_null_out(function), deterministic=True)


def _null_in_null_out(function: Callable[..., Any]) -> Callable[..., Any]:
    def called(*first: Any) -> Any:
        return None if any(value is None for value in first) else function(*first)

    return called


@lru_cache(maxsize=512)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


@lru_cache(maxsize=512)
def _like(pattern: str) -> re.Pattern[str]:
    written = ""
    for escaped, character in re.findall(r"(\\?)(.)", pattern, flags=re.DOTALL):
        wild = {"%": ".*", "_": "."}.get(character) if not escaped else None
        written += wild or re.escape(character)
    return re.compile(written, re.DOTALL)


def _sha256(value: Any) -> bytes:
    return hashlib.sha256(value if isinstance(value, bytes) else str(value).encode()).digest()


def _decimal(value: Any, scale: int) -> str:
    return f"{_rounded(_number(value), scale):f}"


def _number(value: Any) -> Decimal:
    return Decimal(repr(value) if isinstance(value, float) else str(value))


def _rounded(number: Decimal, digits: int) -> Decimal:
    with localcontext() as context:
        context.prec = max(_DIGITS, number.adjusted() + digits + 2, len(number.as_tuple().digits) + 2)
        rounded = number.quantize(Decimal(1).scaleb(-digits), rounding=ROUND_HALF_UP)
        return rounded if rounded else abs(rounded)


def _round(value: Any, digits: int) -> Any:
    number = _number(value)
    if not number.is_finite():
        return value
    rounded = _rounded(number, digits)
    if isinstance(value, int):
        return int(rounded)
    return float(rounded) if isinstance(value, float) else f"{rounded:f}"


def _compare(value: Any, other: Any, meaning: str) -> int:
    if meaning == "number":
        left: Any = _number(value)
        right: Any = _number(other)
    elif meaning == "date":
        left, right = str(value)[:10], str(other)[:10]
    else:
        left, right = _read_time(value), _read_time(other)
    return int(left > right) - int(left < right)


def _read_time(value: Any) -> datetime:
    """Parse a time and return it in UTC; a text without an offset is UTC."""
    match = _TIME.match(str(value))
    if not match:
        raise ValueError(f"{value!r} is no date and time")
    year, month, day, hour, minute, second, fraction, offset = match.groups()
    clock = (int(hour or 0), int(minute or 0), int(second or 0), int((fraction or "").ljust(6, "0")))
    local = datetime(int(year), int(month), int(day), *clock, tzinfo=timezone.utc)
    if offset in (None, "Z"):
        return local
    digits = offset[1:].replace(":", "").ljust(4, "0")
    ahead = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return local + ahead if offset.startswith("-") else local - ahead


def _instant_text(moment: datetime) -> str:
    return moment.isoformat(sep=" ", timespec="microseconds")


def _to_zone(value: Any, zone: str) -> str:
    return _instant_text(_read_time(value).astimezone(ZoneInfo(zone)).replace(tzinfo=None))


def _from_zone(value: Any, zone: str) -> str:
    wall_clock = _read_time(value).replace(tzinfo=ZoneInfo(zone))
    return _instant_text(wall_clock.astimezone(timezone.utc))


def _date_trunc(value: Any, unit: str, keeps_wall_clock: int) -> str:
    start = _start_of(_read_time(value), unit)
    return _instant_text(start.replace(tzinfo=None) if keeps_wall_clock else start)


def _start_of(moment: datetime, unit: str) -> datetime:
    if unit == "microseconds":
        return moment
    if unit == "milliseconds":
        return moment.replace(microsecond=moment.microsecond // 1000 * 1000)
    moment = moment.replace(microsecond=0)
    if unit == "second":
        return moment
    smaller = {"minute": {"second": 0}, "hour": {"second": 0, "minute": 0}}
    if unit in smaller:
        return moment.replace(**smaller[unit])  # type: ignore[arg-type]
    moment = moment.replace(second=0, minute=0, hour=0)
    day: date = moment.date()
    if unit == "week":
        return moment - timedelta(days=day.weekday())
    first = {"month": day.month, "quarter": (day.month - 1) // 3 * 3 + 1, "year": 1}
    return moment if unit == "day" else moment.replace(month=first[unit], day=1)
