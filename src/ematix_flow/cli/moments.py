"""Points in time as people read them."""

from __future__ import annotations

from datetime import datetime, timedelta

from ematix_flow.foundation.clock import now


def local(moment: datetime) -> str:
    """The wall clock of the reader, to the second."""
    return moment.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def duration(milliseconds: int | None) -> str:
    """How long something took; a dash while it has not ended.

    >>> duration(1500), duration(75_000), duration(None)
    ('1.5 s', '1 min 15 s', '-')
    """
    if milliseconds is None:
        return "-"
    if milliseconds < 60_000:
        return f"{milliseconds / 1000:.1f} s"
    minutes, rest = divmod(round(milliseconds / 1000), 60)
    return f"{minutes} min {rest:02d} s"


def next_due(schedule: str, zone: str | None, *, after: datetime | None = None) -> datetime | None:
    """When a cron schedule fires next; None for one that cannot be read."""
    from ematix_flow.orchestrate.cron import BadSchedule, next_fire

    try:
        return next_fire(schedule, after or now(), zone=zone)
    except BadSchedule:
        return None


def retry_at(last: datetime, wait_seconds: float) -> datetime:
    """When a failed run may be tried again."""
    return last + timedelta(seconds=wait_seconds)
