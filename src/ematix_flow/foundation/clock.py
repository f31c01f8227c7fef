"""Time, asked for in one place so that tests can see what a run saw."""

from __future__ import annotations

from datetime import datetime, timezone


def now() -> datetime:
    """The current instant in UTC, to the microsecond."""
    return datetime.now(timezone.utc)
