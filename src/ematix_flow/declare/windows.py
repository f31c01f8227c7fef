"""Windows of data time: half-open intervals of instants, with sizes in minutes, hours or calendar units."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone, tzinfo
from itertools import islice
from typing import Any

from ematix_flow.foundation.clock import in_utc
from ematix_flow.foundation.errors import DeclarationError

MOST_WINDOWS = 100_000
_UNITS = {"min": timedelta(minutes=1), "h": timedelta(hours=1)}
_CALENDAR = ("d", "w", "mo")
_CHUNK = re.compile(r"(\d{1,6})\s*(min|h|d|w|mo)")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_DAY = timedelta(days=1)
_MONDAY = date(1970, 1, 5)


@dataclass(frozen=True, order=True)
class DataWindow:
    """A window from its start, inclusive, to its end, exclusive; both in UTC.

    >>> str(DataWindow(datetime(2026, 1, 1), datetime(2026, 1, 2)))
    '2026-01-01T00:00:00Z/2026-01-02T00:00:00Z'
    """

    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        object.__setattr__(self, "start", in_utc(self.start))
        object.__setattr__(self, "end", in_utc(self.end))
        if self.end <= self.start:
            raise DeclarationError(f"a window ends after it starts: {self.start.isoformat()} – {self.end.isoformat()}")

    def __str__(self) -> str:
        return f"{_plain(self.start)}/{_plain(self.end)}"

    @classmethod
    def parse(cls, text: str) -> DataWindow:
        """Return the window from its text."""
        start, _, end = text.partition("/")
        return cls(parse_instant(start), parse_instant(end))

    def overlaps(self, other: DataWindow) -> bool:
        """Return whether the windows have an instant in common."""
        return self.start < other.end and other.start < self.end


@dataclass(frozen=True)
class WindowSize:
    """The size of a window: minutes and hours are elapsed time, days, weeks and months follow the calendar.

    >>> str(WindowSize.parse("6 h")), WindowSize.parse("1mo").unit
    ('6h', 'mo')
    """

    count: int
    unit: str

    @classmethod
    def parse(cls, value: Any, *, option: str = "chunk") -> WindowSize:
        """Return the size from text such as `15min`, `6h`, `1d`, `1w`, `1mo`."""
        if isinstance(value, WindowSize):
            return value
        match = _CHUNK.fullmatch(value.strip().lower()) if isinstance(value, str) else None
        if match is None or int(match[1]) == 0:
            raise DeclarationError(
                f"{option} {value!r} is no length of time", hint="for example 15min, 6h, 1d, 1w, 1mo"
            )
        return cls(int(match[1]), match[2])

    def __str__(self) -> str:
        return f"{self.count}{self.unit}"

    def after(self, start: datetime, steps: int, *, zone: str | None = None) -> datetime:
        """Return the end of `steps` consecutive chunks from `start`; a day lasts from clock time to clock time."""
        if self.unit in _UNITS or steps == 0:
            return start + steps * self.count * _UNITS.get(self.unit, _DAY)
        local = start.astimezone(_zone(zone)).replace(tzinfo=None)
        if self.unit == "mo":
            return _instant_of_clock_time(_months_later(local, steps * self.count), zone)
        return _instant_of_clock_time(local + steps * self.count * (7 if self.unit == "w" else 1) * _DAY, zone)

    def floor(self, instant: datetime, *, zone: str | None = None) -> datetime:
        """Return the last boundary not later than the instant: of the clock, days, weeks from Monday, or months."""
        local = instant.astimezone(_zone(zone))
        day = local.date()
        if self.unit in _UNITS:
            length = self.count * _UNITS[self.unit]
            origin = _instant_of_clock_time(datetime(day.year, day.month, day.day), zone) if length < _DAY else _EPOCH
            return origin + (instant - origin) // length * length
        if self.unit == "mo":
            months = (day.year * 12 + day.month - 1) // self.count * self.count
            day = date(months // 12, months % 12 + 1, 1)
        else:
            origin_day, length_in_days = (_MONDAY, 7 * self.count) if self.unit == "w" else (_EPOCH.date(), self.count)
            day -= timedelta(days=(day - origin_day).days % length_in_days)
        return _instant_of_clock_time(datetime(day.year, day.month, day.day), zone)

    def cut(self, window: DataWindow, *, zone: str | None = None) -> list[DataWindow]:
        """Return the window in chunks, from its start; the last one ends with the window."""
        edges = [window.start]
        while True:
            edge = self.after(window.start, len(edges), zone=zone)
            if edge >= window.end:
                return [DataWindow(*pair) for pair in zip(edges, [*edges[1:], window.end], strict=True)]
            edges.append(edge)
            if len(edges) > MOST_WINDOWS:
                raise DeclarationError(
                    f"{window} has more than {MOST_WINDOWS:,} chunks of {self}", hint="choose a longer chunk"
                )


def parse_instant(value: Any, *, zone: str | None = None, option: str = "time") -> datetime:
    """Return an instant from a date, a datetime or their text; without an offset it is in the zone, else in UTC.

    >>> parse_instant("2026-07-01", zone="Europe/Berlin").isoformat()
    '2026-06-30T22:00:00+00:00'
    """
    try:
        parsed = value
        if isinstance(value, str):
            text = value.strip()
            parsed = datetime.fromisoformat(text[:-1] + "+00:00" if text[-1:] in "Zz" else text)
        if isinstance(parsed, datetime):
            return parsed.astimezone(timezone.utc) if parsed.tzinfo else _instant_of_clock_time(parsed, zone)
        if isinstance(parsed, date):
            return _instant_of_clock_time(datetime(parsed.year, parsed.month, parsed.day), zone)
    except (ValueError, OverflowError):
        pass
    raise DeclarationError(
        f"{option} {value!r} is not a time", hint="write 2026-01-31, 2026-01-31T06:00 or 2026-01-31T06:00Z"
    )


def format_instant(instant: datetime, *, zone: str | None = None) -> str:
    """Return the shortest text that `moment` parses as this instant.

    >>> format_instant(datetime(2026, 6, 30, 22, tzinfo=timezone.utc), zone="Europe/Berlin")
    '2026-07-01'
    """
    local = instant.astimezone(_zone(zone)).replace(tzinfo=None)
    is_midnight = (local.hour, local.minute, local.second, local.microsecond) == (0, 0, 0, 0)
    text = local.date().isoformat() if is_midnight else local.isoformat()
    if local.second == 0 and local.microsecond == 0 and not is_midnight:
        text = local.isoformat(timespec="minutes")
    return text if parse_instant(text, zone=zone) == instant else _plain(instant)


def merge_windows(windows: Iterable[DataWindow]) -> list[DataWindow]:
    """Return the same instants in as few windows as possible, the earliest first."""
    merged_windows: list[DataWindow] = []
    for window in sorted(windows):
        if merged_windows and window.start <= merged_windows[-1].end:
            merged_windows[-1] = DataWindow(merged_windows[-1].start, max(merged_windows[-1].end, window.end))
        else:
            merged_windows.append(window)
    return merged_windows


def subtract_windows(windows: Iterable[DataWindow], covered: Iterable[DataWindow]) -> list[DataWindow]:
    """Return the parts of the windows that no covered window contains; adjacent windows are not merged."""
    taken = merge_windows(covered)
    ends = [other.end for other in taken]
    return [
        piece
        for window in windows
        for piece in _remaining_parts(window, islice(taken, bisect_right(ends, window.start), None))
    ]


def _remaining_parts(window: DataWindow, later: Iterable[DataWindow]) -> Iterator[DataWindow]:
    """Yield the uncovered parts of a window; `later` are the covered windows that end after its start, in order."""
    start = window.start
    for other in later:
        if other.start >= window.end:
            break
        if other.start > start:
            yield DataWindow(start, other.start)
        start = max(start, other.end)
    if start < window.end:
        yield DataWindow(start, window.end)


def _plain(instant: datetime) -> str:
    return instant.astimezone(timezone.utc).replace(tzinfo=None).isoformat() + "Z"


def _zone(name: str | None) -> tzinfo:
    if name is None:
        return timezone.utc
    from zoneinfo import ZoneInfo

    return ZoneInfo(name)


def _instant_of_clock_time(local: datetime, zone: str | None) -> datetime:
    """Return the instant of a clock time in the zone; the first one where the clocks show it twice."""
    return local.replace(tzinfo=_zone(zone)).astimezone(timezone.utc)


def _months_later(local: datetime, months: int) -> datetime:
    """Return the same day of a later month, or its last one."""
    count = local.year * 12 + local.month - 1 + months
    year, month = count // 12, count % 12 + 1
    last = (date(year + month // 12, month % 12 + 1, 1) - _DAY).day
    return local.replace(year=year, month=month, day=min(local.day, last))
