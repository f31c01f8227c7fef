"""The steps of a run with their times, from the signs of life that it gives."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


class SignOfLife(Protocol):
    """What a run says while it works."""

    @property
    def step(self) -> str:
        """What it does now."""

    @property
    def text(self) -> str:
        """More of it, in words."""

    @property
    def rows(self) -> int | None:
        """How far it got."""


@dataclass(frozen=True)
class Step:
    """A step that ended; times are nanoseconds since 1970."""

    name: str
    began: int
    ended: int
    text: str = ""
    rows: int | None = None

    @property
    def seconds(self) -> float:
        """How long it took."""
        return max(0, self.ended - self.began) / 1e9


class StepClock:
    """Listens to a run; a step lasts until the next one begins. Signs may come from several threads."""

    def __init__(self, clock: Callable[[], int] = time.time_ns) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._done: list[Step] = []
        self._open: Step | None = None

    def __call__(self, event: SignOfLife) -> None:
        """One sign of life."""
        now = self._clock()
        with self._lock:
            step = self._open
            if step is not None and (step.name, step.text) == (event.step, event.text):
                rows = event.rows if event.rows is not None else step.rows
                self._open = Step(step.name, step.began, now, step.text, rows)
                return
            self._end(now)
            self._open = Step(event.step, now, now, event.text, event.rows)

    def finish(self) -> tuple[Step, ...]:
        """Every step, the last one ended now."""
        with self._lock:
            self._end(self._clock())
            self._open = None
            return tuple(self._done)

    def _end(self, now: int) -> None:
        if self._open is not None:
            step = self._open
            self._done.append(Step(step.name, step.began, now, step.text, step.rows))
