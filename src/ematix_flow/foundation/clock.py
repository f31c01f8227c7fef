"""The clock, read in one place so that tests can replace it."""

from __future__ import annotations

from datetime import datetime, timezone


def now() -> datetime:
    """Return the current instant in UTC, to the microsecond."""
    return datetime.now(timezone.utc)


def in_utc(instant: datetime) -> datetime:
    """Return the instant in UTC; a time without a zone is UTC."""
    return instant.replace(tzinfo=timezone.utc) if instant.tzinfo is None else instant.astimezone(timezone.utc)
