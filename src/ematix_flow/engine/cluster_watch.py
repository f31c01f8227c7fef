"""Monitoring of a cluster session: a run that has lost all executors waits for new ones, up to a time limit."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from ematix_flow.engine import peers
from ematix_flow.engine.choice import Choice
from ematix_flow.engine.executors import Tell
from ematix_flow.foundation.errors import FlowError, Unreachable

if TYPE_CHECKING:
    from pyspark import SparkContext

_LOOK_SECONDS = 2.0
_QUIET_SECONDS = 5.0


class Watch:
    """A monitor thread for one session; `given_up` is the reason why its jobs were cancelled."""

    def __init__(self, context: SparkContext, choice: Choice) -> None:
        self._context = context
        self._choice = choice
        self.tell: Tell = lambda _: None
        """Reports progress to the run that currently uses the session."""
        self.given_up: Unreachable | None = None
        threading.Thread(target=self._look, daemon=True, name="flow-cluster-watch").start()

    def _look(self) -> None:
        idle_since: float | None = None
        while True:
            time.sleep(_LOOK_SECONDS)
            try:
                is_idle = self._has_work() and not self._has_tasks()
            except Exception:  # the session has ended, so the thread ends too
                return
            idle_since = (idle_since or time.monotonic()) if is_idle else None
            waited = time.monotonic() - idle_since if idle_since else 0.0
            if waited > self._choice.wait_seconds:
                self._give_up(waited)
                idle_since = None
            elif waited > _QUIET_SECONDS:
                self.tell(f"waiting for executors of {peers.shown(self._choice.address)}")

    def _has_work(self) -> bool:
        return bool(self._context.statusTracker().getActiveStageIds())

    def _has_tasks(self) -> bool:
        tracker = self._context.statusTracker()
        found = (tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds())
        return any(info is not None and info.numActiveTasks > 0 for info in found)

    def _give_up(self, waited: float) -> None:
        self.given_up = Unreachable(
            f"{peers.shown(self._choice.address)} has had no executor for this run for {waited:.0f} s",
            hint="look whether its workers live, and run it again; wait = … below [spark] waits longer",
        )
        self._context.cancelAllJobs()


def instead_of(error: FlowError, watch: Watch | None) -> FlowError:
    """Return the reason why the watch cancelled the jobs, if it did, in place of the resulting error."""
    given_up = watch.given_up if watch is not None else None
    if watch is None or given_up is None:
        return error
    watch.given_up = None
    given_up.facts = error.facts
    return given_up.at(error.where)
