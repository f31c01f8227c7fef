"""What follows from the ledger: the plan of a backfill, the window of a live run, what a worker may take, the gaps."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ematix_flow.backfill.gaps import gaps_of
from ematix_flow.backfill.plan import plan_windows, window_of
from ematix_flow.backfill.worker import free_windows
from ematix_flow.declare.pipeline import PipelineSpec
from ematix_flow.declare.windows import DataWindow, WindowSize, merge_windows, subtract_windows
from ematix_flow.engine.batch.windows import next_live_window
from ematix_flow.foundation.errors import PlanError
from ematix_flow.run_log.schedule import Interval
from ematix_flow.run_log.worker import this_worker

FIRST = datetime(2026, 1, 1, tzinfo=timezone.utc)
DAY = timedelta(days=1)
NOON = FIRST + timedelta(days=100, hours=12)
DAYS = WindowSize(1, "d")
ELSEWHERE = "another-host:4711:99"


def days(first: int, last: int, status: str = "done", **more: Any) -> list[Interval]:
    """One interval a day."""
    return [Interval(FIRST + DAY * n, FIRST + DAY * (n + 1), status, **more) for n in range(first, last)]


def span(first: float, last: float) -> DataWindow:
    return DataWindow(FIRST + DAY * first, FIRST + DAY * last)


def running(first: int, last: int, *, dead: bool = False) -> list[Interval]:
    expires = NOON - DAY if dead else NOON + DAY
    return days(first, last, "running", worker_id=ELSEWHERE, expires_at=expires)


def planned(known: list[Interval], asked: DataWindow | None, *, resume: bool = False, redo: str | None = None) -> Any:
    return plan_windows(known, asked, DAYS, zone=None, resume=resume, redo=redo)


@st.composite
def ledgers(draw: st.DrawFn) -> list[Interval]:
    """Intervals of any length that touch or leave gaps, and never overlap."""
    found, at = [], FIRST
    for _ in range(draw(st.integers(0, 12))):
        start = at + timedelta(hours=draw(st.integers(0, 40)))
        at = start + timedelta(hours=draw(st.integers(1, 60)))
        found.append(Interval(start, at, draw(st.sampled_from(["planned", "done", "failed"]))))
    return found


@given(ledgers(), st.integers(0, 20), st.integers(1, 30))
def test_a_plan_covers_what_is_asked_for_once_and_touches_nothing_that_is_done(
    known: list[Interval], first: int, length: int
) -> None:
    asked = span(first, first + length)
    made = planned(known, asked)
    done = [window_of(item) for item in known if item.status == "done"]
    assert subtract_windows([asked], [*made.windows, *done]) == []
    everything = sorted([*made.windows, *done])
    assert all(left.end <= right.start for left, right in pairwise(everything))
    there = {window_of(item) for item in known}
    assert all(window in there or subtract_windows([window], [asked]) == [] for window in made.windows)


@given(ledgers(), st.integers(0, 20), st.integers(1, 30))
def test_planning_again_after_everything_is_done_finds_nothing_to_do(
    known: list[Interval], first: int, length: int
) -> None:
    asked = span(first, first + length)
    done = [Interval(window.start, window.end, "done") for window in planned(known, asked).windows]
    kept = [item for item in known if window_of(item) not in {window_of(other) for other in done}]
    assert planned([*kept, *done], asked).windows == ()


def test_failed_windows_are_planned_anew_and_done_ones_left_alone() -> None:
    known = [*days(0, 3), *days(3, 4, "failed", error="bad day"), *days(4, 6)]
    made = planned(known, span(0, 6))
    assert made.windows == (span(3, 4),)
    assert [(item.start, item.status, item.error) for item in made.record] == [(FIRST + 3 * DAY, "planned", None)]
    assert made.done == 5


def test_what_a_live_run_loaded_with_other_edges_is_cut_out_of_the_days() -> None:
    live = Interval(FIRST + 1.5 * DAY, FIRST + 3.25 * DAY, "done")
    assert planned([live], span(0, 5)).windows == (span(0, 1), span(1, 1.5), span(3.25, 4), span(4, 5))


def test_resuming_takes_up_what_is_open_and_plans_nothing_new() -> None:
    known = [*days(0, 2), *days(2, 4, "planned"), *days(7, 8, "failed")]
    assert planned(known, None, resume=True).windows == (span(2, 3), span(3, 4), span(7, 8))
    assert planned(known, span(0, 4), resume=True).windows == (span(2, 3), span(3, 4))


def test_doing_windows_again_names_the_repetition_so_that_the_target_takes_it() -> None:
    made = planned(days(0, 2), span(0, 1), redo="redo:1234")
    assert [(item.status, item.run_id) for item in made.record] == [("planned", "redo:1234")]
    retried = planned(days(0, 1, "failed", run_id="redo:1234"), span(0, 1))
    assert retried.record[0].run_id == "redo:1234"


@pytest.mark.parametrize(
    ("known", "window", "is_behind"),
    [
        (days(0, 3), span(3, 100), False),
        ([*days(0, 3), *days(50, 51)], span(51, 100), False),
        ([*days(0, 3), *days(3, 5, "planned")], span(5, 100), False),
        ([*days(0, 3), *running(3, 4)], span(4, 100), False),
        ([*days(0, 3), *running(3, 4, dead=True)], span(3, 4), True),
        ([*days(0, 3), *days(3, 4, "failed")], span(3, 4), True),
        ([*days(0, 1, "failed"), *days(1, 3)], span(3, 100), False),
        (days(99, 100), None, False),
        (days(100, 101), None, False),
    ],
)
def test_a_live_run_goes_on_where_the_ledger_ends(
    known: list[Interval], window: DataWindow | None, is_behind: bool
) -> None:
    assert next_live_window(known, begin=None, end=FIRST + 100 * DAY, moment=NOON) == (window, is_behind)


def test_the_first_window_begins_where_the_pipeline_says_and_not_before() -> None:
    end = FIRST + 100 * DAY
    assert next_live_window([], begin=FIRST + 9 * DAY, end=end, moment=NOON) == (span(9, 100), False)
    assert next_live_window(days(0, 3), begin=FIRST + 9 * DAY, end=end, moment=NOON) == (span(9, 100), False)
    assert next_live_window(days(0, 30), begin=FIRST + 9 * DAY, end=end, moment=NOON) == (span(30, 100), False)
    with pytest.raises(PlanError) as refused:
        next_live_window([], begin=None, end=end, moment=NOON)
    assert "window_start" in (refused.value.hint or "")


@given(ledgers(), st.integers(0, 40))
def test_a_live_window_overlaps_nothing_that_the_ledger_holds(known: list[Interval], now: int) -> None:
    window, is_behind = next_live_window(known, begin=FIRST, end=FIRST + now * DAY, moment=NOON)
    others = [window_of(item) for item in known if window is None or window_of(item) != window]
    assert window is None or not any(window.overlaps(other) for other in others)
    assert is_behind == (window is not None and window in map(window_of, known))


def free(known: list[Interval], *, in_order: bool) -> tuple[list[DataWindow], bool]:
    windows = [span(n, n + 1) for n in range(5)]
    return free_windows(windows, {window_of(item): item for item in known}, in_order=in_order, moment=NOON)


def test_a_worker_takes_what_is_planned_or_left_by_the_dead() -> None:
    known = [*days(0, 1), *days(1, 2, "failed"), *running(2, 3, dead=True), *running(3, 4), *days(4, 5, "planned")]
    assert free(known, in_order=False) == ([span(2, 3), span(4, 5)], True)


def test_in_order_a_failed_window_stops_those_after_it() -> None:
    known = [*days(0, 1), *days(1, 2, "failed"), *days(2, 5, "planned")]
    assert free(known, in_order=True) == ([], False)


def test_in_order_only_the_first_open_window_is_free() -> None:
    assert free([*days(0, 2), *days(2, 5, "planned")], in_order=True) == ([span(2, 3)], False)
    assert free([*days(0, 2), *running(2, 3), *days(3, 5, "planned")], in_order=True) == ([], True)


def spec(**more: Any) -> PipelineSpec:
    function: Callable[..., Any] = lambda start, end: {}  # noqa: E731
    return PipelineSpec("orders", function, (), **more)


def states(found: Any) -> list[tuple[str, DataWindow]]:
    return [(item.state, item.window) for item in found.stretches]


def test_gaps_are_what_lies_between_and_what_failed() -> None:
    known = [
        *days(0, 3),
        *days(3, 4, "failed", error="bad day"),
        *days(6, 9),
        *running(9, 10),
        *days(10, 12, "planned"),
    ]
    found = gaps_of(spec(), known, moment=NOON)
    assert states(found) == [
        ("done", span(0, 3)),
        ("failed", span(3, 4)),
        ("gap", span(4, 6)),
        ("done", span(6, 9)),
        ("running", span(9, 10)),
        ("planned", span(10, 12)),
    ]
    assert found.missing == [span(3, 6), span(10, 12)]
    assert not found.is_known
    assert [item.windows for item in found.stretches] == [3, 1, 0, 3, 1, 2]


def test_gaps_reach_from_the_declared_start_to_the_last_fire_of_the_schedule() -> None:
    found = gaps_of(spec(schedule="0 2 * * *", window_start=FIRST, window_size=DAYS), days(5, 99), moment=NOON)
    assert states(found) == [("gap", span(0, 5)), ("done", span(5, 99)), ("gap", span(99, 100))]
    assert states(gaps_of(spec(schedule="0 2 * * *"), days(0, 100), moment=NOON))[-1] == (
        "gap",
        span(100, 100 + 2 / 24),
    )


def test_a_pipeline_that_never_ran_has_no_line_yet() -> None:
    assert gaps_of(spec(), [], moment=NOON).stretches == ()


def test_a_window_whose_worker_died_counts_as_planned() -> None:
    alive = days(0, 1, "running", worker_id=this_worker(), expires_at=NOON + DAY)
    assert states(gaps_of(spec(), alive, moment=NOON)) == [("running", span(0, 1))]
    assert states(gaps_of(spec(), running(0, 1, dead=True), moment=NOON)) == [("planned", span(0, 1))]


def test_adjacent_ranges_are_reported_as_one() -> None:
    assert merge_windows(map(window_of, days(0, 9))) == [span(0, 9)]
