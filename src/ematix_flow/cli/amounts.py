"""Formatting of sizes in bytes and of rates in rows and bytes per second."""

from __future__ import annotations

_UNITS = ("B", "kB", "MB", "GB", "TB")


def size(count: float) -> str:
    """Return a number of bytes with the unit that keeps it short; 1 kB is 1000 bytes.

    >>> size(512), size(1_234_567), size(99_999_999_999)
    ('512 B', '1.2 MB', '100.0 GB')
    """
    index = 0
    while abs(count) >= 999.95 and index < len(_UNITS) - 1:
        count, index = count / 1000, index + 1
    return f"{count:.0f} B" if index == 0 else f"{count:.1f} {_UNITS[index]}"


def pace(rows: int | None, size_in_bytes: int | None, seconds: float | None) -> list[str]:
    """Return rows and bytes per second as texts, leaving out what is unknown or zero.

    >>> pace(300_000, 4_500_000, 3.0)
    ['100,000 rows/s', '1.5 MB/s']
    """
    if not seconds:
        return []
    told = [f"{rows / seconds:,.0f} rows/s"] if rows else []
    return told + ([f"{size(size_in_bytes / seconds)}/s"] if size_in_bytes else [])
