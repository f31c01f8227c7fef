"""The fire times of cron schedules, in time zones with daylight saving time.

Fire times are instants. A local time skipped in spring fires right after the gap; a local time that occurs twice in
autumn fires once, except for schedules that fire every hour or more often, which follow elapsed time.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from functools import lru_cache
from zoneinfo import ZoneInfo

from ematix_flow.foundation.errors import DeclarationError

_NICKNAMES = {
    "@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *",
}  # fmt: skip


class BadSchedule(DeclarationError):
    """A schedule that is not a valid cron expression, or that never fires."""


def check_schedule(schedule: str) -> None:
    """Raise a BadSchedule if the text is not a cron expression.

    >>> check_schedule("*/5 * * * *")
    """
    next_fire(schedule, datetime(2026, 1, 1, tzinfo=timezone.utc))


def next_fire(schedule: str, after: datetime, *, zone: str | None = None) -> datetime:
    """Return the first fire time later than the instant, in UTC.

    >>> next_fire("0 2 * * *", datetime(2026, 1, 1, 2, tzinfo=timezone.utc)).isoformat()
    '2026-01-02T02:00:00+00:00'
    """
    return _step(schedule, after, zone, reverse=False)


def last_fire(schedule: str, until: datetime, *, zone: str | None = None) -> datetime:
    """Return the last fire time at or before the instant, in UTC.

    >>> last_fire("0 2 * * *", datetime(2026, 1, 1, 2, tzinfo=timezone.utc)).isoformat()
    '2026-01-01T02:00:00+00:00'
    """
    # One second later, because the library returns only times before its start.
    return _step(schedule, until.replace(microsecond=0) + timedelta(seconds=1), zone, reverse=True)


def fire_between(schedule: str, start: datetime, end: datetime, *, zone: str | None = None) -> datetime | None:
    """Return the last fire time after the start and not after the end; None if there is none."""
    fired = last_fire(schedule, end, zone=zone)
    return fired if fired > start else None


def _step(schedule: str, moment: datetime, zone: str | None, *, reverse: bool) -> datetime:
    from cronsim import CronSim, CronSimError

    text = _NICKNAMES.get(schedule.strip().lower(), schedule.strip())
    try:
        instant: datetime = next(CronSim(text, moment.astimezone(_zone(zone)), reverse=reverse))
    except StopIteration:
        raise BadSchedule(f"schedule {schedule!r} never fires", hint="check its day and month") from None
    except CronSimError as error:
        raise BadSchedule(
            f"schedule {schedule!r} is no cron expression: {error}",
            hint='minute hour day month weekday, for example "*/5 * * * *" or "0 2 * * MON-FRI"',
        ) from None
    return instant.astimezone(timezone.utc)


@lru_cache(maxsize=64)
def _zone(name: str | None) -> ZoneInfo:
    return ZoneInfo(name or "UTC")
