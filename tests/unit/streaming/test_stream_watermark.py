"""Event time of streams: who moves it, who holds it back, and what silence does."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ematix_flow.declare.streams.parts import Watermark
from ematix_flow.streaming.state.watermark import EventTimes, advance_times, wake_time

SECOND = 1_000_000
SAID = Watermark(lateness_ms=2_000, source_idleness_ms=60_000)


def step(times: EventTimes, *came: int | None, now: int) -> EventTimes:
    """After a micro-batch; all in seconds."""
    return advance_times(times, [None if at is None else at * SECOND for at in came], now * SECOND, SAID)


def mark(times: EventTimes) -> float | None:
    """The watermark in seconds."""
    return None if times.mark is None else times.mark / SECOND


def test_the_watermark_is_what_the_slowest_source_has_reached_less_the_lateness() -> None:
    times = step(EventTimes.of(2), 100, None, now=0)
    assert mark(times) is None
    times = step(times, None, 40, now=1)
    assert mark(times) == 38
    times = step(times, None, 300, now=2)
    assert mark(times) == 98


def test_a_source_that_is_silent_for_long_delays_no_other() -> None:
    times = step(EventTimes.of(2), 100, 10, now=0)
    assert mark(step(times, 200, None, now=59)) == 8
    assert mark(step(times, 200, None, now=60)) == 198


def test_a_source_that_never_spoke_is_waited_for_as_long() -> None:
    times = step(EventTimes.of(2), 100, None, now=0)
    assert mark(step(times, 200, None, now=30)) is None
    assert mark(step(times, 200, None, now=61)) == 198


def test_when_all_are_silent_event_time_goes_on_as_the_clock_does() -> None:
    times = step(EventTimes.of(1), 100, now=1_000)
    assert mark(step(times, None, now=1_059)) == 98
    assert mark(step(times, None, now=1_090)) == 188


def test_the_watermark_never_goes_back() -> None:
    times = step(EventTimes.of(1), 100, now=0)
    assert mark(step(times, 5, now=1)) == 98
    quiet = step(times, None, now=100)
    assert mark(step(quiet, 101, now=101)) == mark(quiet) == 198


@given(
    newest=st.lists(st.none() | st.integers(0, 10_000), min_size=1, max_size=3),
    due=st.integers(0, 20_000), later=st.integers(0, 100_000),
)  # fmt: skip
def test_a_tick_comes_when_and_only_when_it_brings_the_watermark_to_what_is_due(
    newest: list[int | None], due: int, later: int
) -> None:
    times = step(EventTimes.of(len(newest)), *newest, now=500)
    if times.mark is not None and times.mark >= due * SECOND:
        return
    wakes = wake_time(times, due * SECOND, SAID)
    assert wakes is not None
    silent = [None] * len(newest)
    reached = advance_times(times, silent, wakes, SAID).mark
    if all(at is None for at in newest):
        assert reached is None
        return
    assert reached is not None
    assert reached >= due * SECOND
    before = advance_times(times, silent, max(wakes - 1 - later, 500 * SECOND), SAID).mark
    assert before is None or before < due * SECOND


def test_where_nothing_is_due_there_is_no_wake_time() -> None:
    assert wake_time(step(EventTimes.of(1), 100, now=0), None, SAID) is None
