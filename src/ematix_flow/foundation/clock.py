"""The clock, read in one place so that tests can replace it."""

from __future__ import annotations

from datetime import datetime, timezone


def now() -> datetime:
    """Return the current instant in UTC, to the microsecond."""
    return datetime.now(timezone.utc)
