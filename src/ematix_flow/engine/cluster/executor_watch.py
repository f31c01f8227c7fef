"""Monitoring of a cluster session: a run that has lost all executors waits for new ones, up to a time limit."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from ematix_flow.engine.cluster import master_urls
from ematix_flow.engine.cluster.executors import Tell
from ematix_flow.engine.session.engine_choice import EngineChoice
from ematix_flow.foundation.errors import FlowError, Unreachable

if TYPE_CHECKING:
    from pyspark import SparkContext

_LOOK_SECONDS = 2.0
_QUIET_SECONDS = 5.0


class ExecutorWatch:
    """A monitor thread for one session; `failure` is the reason why its jobs were cancelled."""

    def __init__(self, context: SparkContext, choice: EngineChoice) -> None:
        self._context = context
        self._choice = choice
        self.tell: Tell = lambda _: None
        """Reports progress to the run that currently uses the session."""
        self.failure: Unreachable | None = None
        threading.Thread(target=self._check, daemon=True, name="flow-cluster-watch").start()

    def _check(self) -> None:
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
                self.tell(f"waiting for executors of {master_urls.shown_address(self._choice.address)}")

    def _has_work(self) -> bool:
        return bool(self._context.statusTracker().getActiveStageIds())

    def _has_tasks(self) -> bool:
        tracker = self._context.statusTracker()
        stages = (tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds())
        return any(info is not None and info.numActiveTasks > 0 for info in stages)

    def _give_up(self, waited: float) -> None:
        self.failure = Unreachable(
            f"{master_urls.shown_address(self._choice.address)} has had no executor for this run for {waited:.0f} s",
            hint="look whether its workers live, and run it again; wait = … below [spark] waits longer",
        )
        self._context.cancelAllJobs()


def error_of_watch(error: FlowError, watch: ExecutorWatch | None) -> FlowError:
    """Return the reason why the watch cancelled the jobs, if it did, in place of the resulting error."""
    given_up = watch.failure if watch is not None else None
    if watch is None or given_up is None:
        return error
    watch.failure = None
    given_up.facts = error.facts
    return given_up.at(error.where)
