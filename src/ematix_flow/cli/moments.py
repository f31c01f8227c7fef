"""Formatting of points in time and durations."""

from __future__ import annotations

from datetime import datetime


def local(moment: datetime) -> str:
    """Return a point in time in the local time zone, to the second."""
    return moment.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def duration(milliseconds: int | None) -> str:
    """Return a duration given in milliseconds; a dash while it has not ended.

    >>> duration(1500), duration(75_000), duration(None)
    ('1.5 s', '1 min 15 s', '-')
    """
    if milliseconds is None:
        return "-"
    if milliseconds < 60_000:
        return f"{milliseconds / 1000:.1f} s"
    minutes, rest = divmod(round(milliseconds / 1000), 60)
    return f"{minutes} min {rest:02d} s"
