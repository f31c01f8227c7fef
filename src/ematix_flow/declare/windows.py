"""Windows of data time: half-open intervals of instants, with sizes in minutes, hours or calendar units."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone, tzinfo
from itertools import islice
from typing import Any

from ematix_flow.foundation.errors import DeclarationError

MOST_WINDOWS = 100_000
_UNITS = {"min": timedelta(minutes=1), "h": timedelta(hours=1)}
_CALENDAR = ("d", "w", "mo")
_CHUNK = re.compile(r"(\d{1,6})\s*(min|h|d|w|mo)")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_DAY = timedelta(days=1)
_MONDAY = date(1970, 1, 5)


@dataclass(frozen=True, order=True)
class Window:
    """A window from its start, inclusive, to its end, exclusive; both in UTC.

    >>> str(Window(datetime(2026, 1, 1), datetime(2026, 1, 2)))
    '2026-01-01T00:00:00Z/2026-01-02T00:00:00Z'
    """

    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        object.__setattr__(self, "start", _in_utc(self.start))
        object.__setattr__(self, "end", _in_utc(self.end))
        if self.end <= self.start:
            raise DeclarationError(f"a window ends after it starts: {self.start.isoformat()} – {self.end.isoformat()}")

    def __str__(self) -> str:
        return f"{_plain(self.start)}/{_plain(self.end)}"

    @classmethod
    def parse(cls, text: str) -> Window:
        """Return the window from its text."""
        start, _, end = text.partition("/")
        return cls(moment(start), moment(end))

    def overlaps(self, other: Window) -> bool:
        """Return whether the windows have an instant in common."""
        return self.start < other.end and other.start < self.end


@dataclass(frozen=True)
class Chunk:
    """The size of a window: minutes and hours are elapsed time, days, weeks and months follow the calendar.

    >>> str(Chunk.parse("6 h")), Chunk.parse("1mo").unit
    ('6h', 'mo')
    """

    count: int
    unit: str

    @classmethod
    def parse(cls, given: Any, *, option: str = "chunk") -> Chunk:
        """Return the size from text such as `15min`, `6h`, `1d`, `1w`, `1mo`."""
        if isinstance(given, Chunk):
            return given
        found = _CHUNK.fullmatch(given.strip().lower()) if isinstance(given, str) else None
        if found is None or int(found[1]) == 0:
            raise DeclarationError(
                f"{option} {given!r} is no length of time", hint="for example 15min, 6h, 1d, 1w, 1mo"
            )
        return cls(int(found[1]), found[2])

    def __str__(self) -> str:
        return f"{self.count}{self.unit}"

    def after(self, start: datetime, steps: int, *, zone: str | None = None) -> datetime:
        """Return the end of `steps` consecutive chunks from `start`; a day lasts from clock time to clock time."""
        if self.unit in _UNITS or steps == 0:
            return start + steps * self.count * _UNITS.get(self.unit, _DAY)
        local = start.astimezone(_zone(zone)).replace(tzinfo=None)
        if self.unit == "mo":
            return _on_clock(_months_later(local, steps * self.count), zone)
        return _on_clock(local + steps * self.count * (7 if self.unit == "w" else 1) * _DAY, zone)

    def floor(self, instant: datetime, *, zone: str | None = None) -> datetime:
        """Return the last boundary not later than the instant: of the clock, days, weeks from Monday, or months."""
        local = instant.astimezone(_zone(zone))
        day = local.date()
        if self.unit in _UNITS:
            length = self.count * _UNITS[self.unit]
            origin = _on_clock(datetime(day.year, day.month, day.day), zone) if length < _DAY else _EPOCH
            return origin + (instant - origin) // length * length
        if self.unit == "mo":
            months = (day.year * 12 + day.month - 1) // self.count * self.count
            day = date(months // 12, months % 12 + 1, 1)
        else:
            origin_day, length_in_days = (_MONDAY, 7 * self.count) if self.unit == "w" else (_EPOCH.date(), self.count)
            day -= timedelta(days=(day - origin_day).days % length_in_days)
        return _on_clock(datetime(day.year, day.month, day.day), zone)

    def cut(self, window: Window, *, zone: str | None = None) -> list[Window]:
        """Return the window in chunks, from its start; the last one ends with the window."""
        edges = [window.start]
        while True:
            edge = self.after(window.start, len(edges), zone=zone)
            if edge >= window.end:
                return [Window(*pair) for pair in zip(edges, [*edges[1:], window.end], strict=True)]
            edges.append(edge)
            if len(edges) > MOST_WINDOWS:
                raise DeclarationError(
                    f"{window} has more than {MOST_WINDOWS:,} chunks of {self}", hint="choose a longer chunk"
                )


def moment(given: Any, *, zone: str | None = None, option: str = "time") -> datetime:
    """Return an instant from a date, a datetime or their text; without an offset it is in the zone, else in UTC.

    >>> moment("2026-07-01", zone="Europe/Berlin").isoformat()
    '2026-06-30T22:00:00+00:00'
    """
    try:
        found = given
        if isinstance(given, str):
            text = given.strip()
            found = datetime.fromisoformat(text[:-1] + "+00:00" if text[-1:] in "Zz" else text)
        if isinstance(found, datetime):
            return found.astimezone(timezone.utc) if found.tzinfo else _on_clock(found, zone)
        if isinstance(found, date):
            return _on_clock(datetime(found.year, found.month, found.day), zone)
    except (ValueError, OverflowError):
        pass
    raise DeclarationError(
        f"{option} {given!r} is not a time", hint="write 2026-01-31, 2026-01-31T06:00 or 2026-01-31T06:00Z"
    )


def said(instant: datetime, *, zone: str | None = None) -> str:
    """Return the shortest text that `moment` parses as this instant.

    >>> said(datetime(2026, 6, 30, 22, tzinfo=timezone.utc), zone="Europe/Berlin")
    '2026-07-01'
    """
    local = instant.astimezone(_zone(zone)).replace(tzinfo=None)
    is_midnight = (local.hour, local.minute, local.second, local.microsecond) == (0, 0, 0, 0)
    text = local.date().isoformat() if is_midnight else local.isoformat()
    if local.second == 0 and local.microsecond == 0 and not is_midnight:
        text = local.isoformat(timespec="minutes")
    return text if moment(text, zone=zone) == instant else _plain(instant)


def merged(windows: Iterable[Window]) -> list[Window]:
    """Return the same instants in as few windows as possible, the earliest first."""
    found: list[Window] = []
    for window in sorted(windows):
        if found and window.start <= found[-1].end:
            found[-1] = Window(found[-1].start, max(found[-1].end, window.end))
        else:
            found.append(window)
    return found


def without(windows: Iterable[Window], covered: Iterable[Window]) -> list[Window]:
    """Return the parts of the windows that no covered window contains; adjacent windows are not merged."""
    there = merged(covered)
    ends = [other.end for other in there]
    return [
        piece for window in windows for piece in _pieces(window, islice(there, bisect_right(ends, window.start), None))
    ]


def _pieces(window: Window, later: Iterable[Window]) -> Iterator[Window]:
    """Yield the uncovered parts of a window; `later` are the covered windows that end after its start, in order."""
    start = window.start
    for other in later:
        if other.start >= window.end:
            break
        if other.start > start:
            yield Window(start, other.start)
        start = max(start, other.end)
    if start < window.end:
        yield Window(start, window.end)


def _in_utc(instant: datetime) -> datetime:
    return instant.replace(tzinfo=timezone.utc) if instant.tzinfo is None else instant.astimezone(timezone.utc)


def _plain(instant: datetime) -> str:
    return instant.astimezone(timezone.utc).replace(tzinfo=None).isoformat() + "Z"


def _zone(name: str | None) -> tzinfo:
    if name is None:
        return timezone.utc
    from zoneinfo import ZoneInfo

    return ZoneInfo(name)


def _on_clock(local: datetime, zone: str | None) -> datetime:
    """Return the instant of a clock time in the zone; the first one where the clocks show it twice."""
    return local.replace(tzinfo=_zone(zone)).astimezone(timezone.utc)


def _months_later(local: datetime, months: int) -> datetime:
    """Return the same day of a later month, or its last one."""
    count = local.year * 12 + local.month - 1 + months
    year, month = count // 12, count % 12 + 1
    last = (date(year + month // 12, month % 12 + 1, 1) - _DAY).day
    return local.replace(year=year, month=month, day=min(local.day, last))
