"""Formats bytes, rates, points in time and durations."""

from __future__ import annotations

from datetime import datetime

_UNITS = ("B", "kB", "MB", "GB", "TB")


def format_bytes(count: float) -> str:
    """Return a number of bytes with the unit that keeps it short; 1 kB is 1000 bytes.

    >>> format_bytes(512), format_bytes(1_234_567), format_bytes(99_999_999_999)
    ('512 B', '1.2 MB', '100.0 GB')
    """
    index = 0
    while abs(count) >= 999.95 and index < len(_UNITS) - 1:
        count, index = count / 1000, index + 1
    return f"{count:.0f} B" if index == 0 else f"{count:.1f} {_UNITS[index]}"


def format_rate(rows: int | None, size_in_bytes: int | None, seconds: float | None) -> list[str]:
    """Return rows and bytes per second as texts, leaving out what is unknown or zero.

    >>> format_rate(300_000, 4_500_000, 3.0)
    ['100,000 rows/s', '1.5 MB/s']
    """
    if not seconds:
        return []
    rates = [f"{rows / seconds:,.0f} rows/s"] if rows else []
    return rates + ([f"{format_bytes(size_in_bytes / seconds)}/s"] if size_in_bytes else [])


def format_local_time(moment: datetime) -> str:
    """Return a point in time in the local time zone, to the second."""
    return moment.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def format_duration(milliseconds: int | None) -> str:
    """Return a duration given in milliseconds; a dash while it has not ended.

    >>> format_duration(1500), format_duration(75_000), format_duration(None)
    ('1.5 s', '1 min 15 s', '-')
    """
    return "-" if milliseconds is None else format_seconds(milliseconds / 1000)


def format_seconds(value: float, *, digits: int = 1) -> str:
    """Return a duration given in seconds, below a minute with so many digits after the point.

    >>> format_seconds(0.123), format_seconds(75)
    ('0.1 s', '1 min 15 s')
    """
    if value < 60:
        return f"{value:.{digits}f} s"
    minutes, rest = divmod(round(value), 60)
    return f"{minutes} min {rest:02d} s"
