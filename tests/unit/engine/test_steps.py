"""The clock of a run: every second belongs to one step, and Spark's start to none but its own."""

from __future__ import annotations

import time

from ematix_flow.engine.batch.result import ProgressEvent
from ematix_flow.engine.batch.step_clock import StepClock
from ematix_flow.engine.session import session

TICK, ROUNDED = 0.05, 0.02


def seconds_of(clock: StepClock) -> dict[str, float]:
    return {item.step: item.seconds for item in clock.steps()}


def test_every_second_belongs_to_the_step_that_was_reported_last() -> None:
    clock = StepClock("load_orders")
    for step in ("plan", "stage", "publish", "stage"):
        clock(ProgressEvent("load_orders", step))
        time.sleep(TICK)
    earlier, told, later = clock.elapsed(), seconds_of(clock), clock.elapsed()
    assert list(told) == ["plan", "stage", "publish"]
    assert all(told[step] >= times * TICK * 0.99 for step, times in (("plan", 1), ("stage", 2), ("publish", 1)))
    assert earlier - ROUNDED <= sum(told.values()) <= later + ROUNDED


def test_events_are_passed_on_with_the_time_since_the_run_began() -> None:
    heard: list[ProgressEvent] = []
    clock = StepClock("load_orders", heard.append)
    time.sleep(TICK)
    clock(ProgressEvent("load_orders", "stage", "raw.orders", rows=5, bytes_moved=80))
    (event,) = heard
    assert (event.step, event.text, event.rows, event.bytes_moved) == ("stage", "raw.orders", 5, 80)
    assert event.seconds >= TICK


def test_the_start_of_spark_is_taken_out_of_the_step_that_waits_for_it() -> None:
    heard: list[ProgressEvent] = []
    clock = StepClock("load_orders", heard.append)
    clock(ProgressEvent("load_orders", "stage", "raw.orders"))
    began = time.monotonic()
    with clock.starting():
        clock(ProgressEvent("load_orders", "stage", "raw.orders", rows=0))  # the ticker goes on meanwhile
        time.sleep(2 * TICK)
    started = time.monotonic()
    time.sleep(TICK)
    told, ended = seconds_of(clock), time.monotonic()
    assert 2 * TICK - ROUNDED <= told["start"] <= started - began + ROUNDED
    assert TICK - ROUNDED <= told["stage"] <= ended - began - told["start"] + ROUNDED
    if session.session_start_seconds() is None:
        assert [event.step for event in heard] == ["stage", "start", "stage"]


def test_a_step_that_took_no_time_is_not_reported() -> None:
    clock = StepClock("load_orders")
    clock(ProgressEvent("load_orders", "ensure"))
    clock(ProgressEvent("load_orders", "stage"))
    time.sleep(TICK)
    assert list(seconds_of(clock)) == ["stage"]
