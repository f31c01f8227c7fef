"""Fire times in zones whose clocks jump, and schedules that nobody can read."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from ematix_flow.scheduler.cron import BadSchedule, check_schedule, fire_between, last_fire, next_fire

UTC = timezone.utc
BERLIN = "Europe/Berlin"


def berlin(*moment: int) -> datetime:
    return datetime(*moment, tzinfo=ZoneInfo(BERLIN)).astimezone(UTC)  # type: ignore[arg-type,misc]


def fires(schedule: str, start: datetime, end: datetime, zone: str | None = None) -> list[datetime]:
    found, moment = [], start
    while (moment := next_fire(schedule, moment, zone=zone)) <= end:
        found.append(moment)
    return found


def test_a_schedule_fires_by_the_clocks_of_its_zone() -> None:
    assert next_fire("0 2 * * *", datetime(2026, 1, 1, tzinfo=UTC), zone=BERLIN) == datetime(2026, 1, 1, 1, tzinfo=UTC)
    assert next_fire("0 2 * * *", datetime(2026, 7, 1, tzinfo=UTC), zone=BERLIN) == datetime(2026, 7, 2, tzinfo=UTC)


def test_a_time_that_clocks_skip_in_spring_fires_once_after_the_gap() -> None:
    # 29 March 2026: 02:00 becomes 03:00.
    found = fires("30 2 * * *", berlin(2026, 3, 28, 12), berlin(2026, 3, 30, 12), BERLIN)
    assert len(found) == 2
    assert found[0] == datetime(2026, 3, 29, 1, tzinfo=UTC)  # 03:00, the first minute after the gap
    assert found[1] == berlin(2026, 3, 30, 2, 30)


def test_a_time_that_clocks_show_twice_in_autumn_fires_once() -> None:
    # 25 October 2026: 03:00 becomes 02:00.
    found = fires("30 2 * * *", berlin(2026, 10, 24, 12), berlin(2026, 10, 26, 12), BERLIN)
    assert found == [datetime(2026, 10, 25, 0, 30, tzinfo=UTC), berlin(2026, 10, 26, 2, 30)]


def test_a_schedule_of_every_quarter_hour_goes_on_through_both_changes() -> None:
    for day in ((2026, 3, 29), (2026, 10, 25)):
        start = datetime(*day, tzinfo=UTC)
        found = fires("*/15 * * * *", start, start + timedelta(hours=4), BERLIN)
        assert found == [start + timedelta(minutes=15 * n) for n in range(1, 17)]


def test_the_last_fire_is_the_one_at_the_moment_or_before_it() -> None:
    two = datetime(2026, 1, 1, 2, tzinfo=UTC)
    assert last_fire("0 2 * * *", two) == two
    assert last_fire("0 2 * * *", two + timedelta(microseconds=1)) == two
    assert last_fire("0 2 * * *", two - timedelta(microseconds=1)) == two - timedelta(days=1)


def test_the_window_is_open_at_its_start_and_closed_at_its_end() -> None:
    two = datetime(2026, 1, 1, 2, tzinfo=UTC)
    minute = timedelta(minutes=1)
    assert fire_between("0 2 * * *", two - minute, two) == two
    assert fire_between("0 2 * * *", two, two + minute) is None


@pytest.mark.parametrize("schedule", ["", "* * * *", "61 * * * *", "every minute", "0 0 30 2 *"])
def test_a_schedule_that_no_clock_understands_is_refused_with_an_example(schedule: str) -> None:
    with pytest.raises(BadSchedule) as caught:
        check_schedule(schedule)
    assert caught.value.hint
    assert repr(schedule) in caught.value.what


def test_nicknames_are_understood() -> None:
    assert next_fire("@daily", datetime(2026, 1, 1, 5, tzinfo=UTC)) == datetime(2026, 1, 2, tzinfo=UTC)
