"""The steps of a run with their times, derived from its progress signals."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol


class ProgressSignal(Protocol):
    """A progress signal of a run."""

    @property
    def step(self) -> str:
        """Return the current step."""

    @property
    def text(self) -> str:
        """Return a description of the step."""

    @property
    def rows(self) -> int | None:
        """Return the number of rows processed so far."""


@dataclass(frozen=True)
class TimedStep:
    """A step that ended; times are nanoseconds since 1970."""

    name: str
    began: int
    ended: int
    text: str = ""
    rows: int | None = None

    @property
    def seconds(self) -> float:
        """Return the duration in seconds."""
        return max(0, self.ended - self.began) / 1e9


class StepTimer:
    """A timer of a run's steps; a step lasts until the next one begins. Signals may come from several threads."""

    def __init__(self, clock: Callable[[], int] = time.time_ns) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._done: list[TimedStep] = []
        self._open: TimedStep | None = None

    def __call__(self, event: ProgressSignal) -> None:
        """Record one signal."""
        now = self._clock()
        with self._lock:
            step = self._open
            if step is not None and (step.name, step.text) == (event.step, event.text):
                rows = event.rows if event.rows is not None else step.rows
                self._open = TimedStep(step.name, step.began, now, step.text, rows)
                return
            self._end(now)
            self._open = TimedStep(event.step, now, now, event.text, event.rows)

    def steps(self) -> tuple[TimedStep, ...]:
        """Return all steps so far, as if the last one ended now."""
        with self._lock:
            running = [replace(self._open, ended=self._clock())] if self._open is not None else []
            return (*self._done, *running)

    def finish(self) -> tuple[TimedStep, ...]:
        """Return all steps; the last one ends now."""
        with self._lock:
            self._end(self._clock())
            self._open = None
            return tuple(self._done)

    def _end(self, now: int) -> None:
        if self._open is not None:
            step = self._open
            self._done.append(replace(step, ended=now))
