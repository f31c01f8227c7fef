"""The distribution of a run's time over its steps: every second belongs to one step."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from ematix_flow.engine.batch.result import Listener, ProgressEvent, StepSeconds
from ematix_flow.engine.session import session
from ematix_flow.metrics.step_times import StepTimer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START = "start"
_WORTH_TELLING = 0.0005


def ignore_events(_: ProgressEvent) -> None:
    """Ignore an event."""


class StepClock:
    """A listener that times the steps of a run, and forwards events with the time since the run began."""

    def __init__(self, pipeline: str = "", emit: Listener = ignore_events, *, first: str = "plan") -> None:
        self._pipeline = pipeline
        self._emit = emit
        self._began = time.monotonic()
        self._timer = StepTimer(time.monotonic_ns)
        self._timer(ProgressEvent(pipeline, first))
        self._first = first
        self._event: ProgressEvent | None = None
        self._is_starting = False
        self._lock = threading.Lock()
        self.session: SparkSession | None = None
        """The run's Spark session, None until the run has requested one."""
        self.session_came = ""
        """The session's origin: started (by this run, or joined), reused (of this process), given (by the user)."""

    def __call__(self, event: ProgressEvent) -> None:
        with self._lock:
            self._event = event
            if self._is_starting:  # a progress event of the step that waits for Spark
                return
            self._timer(event)
        self._forward(event)

    @contextmanager
    def starting(self) -> Iterator[None]:
        """Count the time inside this block as the start of Spark, and as no other step."""
        if self._is_starting:
            yield
            return
        known = session.session_start_seconds()
        with self._lock:
            self._is_starting = True
            self._timer(ProgressEvent(self._pipeline, START))
        if known is None:
            self._forward(ProgressEvent(self._pipeline, START))
        try:
            yield
        finally:
            with self._lock:
                self._is_starting = False
                resumed = self._event
                self._timer(resumed or ProgressEvent(self._pipeline, self._first))
            if known is None and resumed is not None:
                self._forward(resumed)
        self._record(known, session.session_start_seconds())

    @property
    def step(self) -> str:
        """Return the current step; the start of Spark belongs to the step that waits for it."""
        return self._event.step if self._event is not None else self._first

    def on_start_message(self, text: str) -> None:
        """Emit an event with the reason why the start of Spark waits."""
        self._forward(ProgressEvent(self._pipeline, START, text))

    def seconds(self, step: str) -> float:
        """Return the seconds spent in one step so far."""
        return sum(item.seconds for item in self._timer.steps() if item.name == step)

    def steps(self) -> tuple[StepSeconds, ...]:
        """Return all steps so far, in the order in which they were first entered."""
        seconds: dict[str, float] = {}
        for item in self._timer.steps():
            seconds[item.name] = seconds.get(item.name, 0.0) + item.seconds
        steps = [StepSeconds(step, round(total, 3)) for step, total in seconds.items()]
        return tuple(item for item in steps if item.seconds >= _WORTH_TELLING)

    def elapsed(self) -> float:
        """Return the seconds since the run began."""
        return time.monotonic() - self._began

    def _forward(self, event: ProgressEvent) -> None:
        self._emit(replace(event, seconds=self.elapsed()))

    def _record(self, before: float | None, after: float | None) -> None:
        if after is None:
            self.session_came = "given"
        elif after != before:
            self.session_came = "started"
        else:
            self.session_came = self.session_came or "reused"
