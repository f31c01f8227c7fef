"""The scheduler: one of several processes leads, requests due runs and dispatches them; the others are on standby.

Only the run log is shared. The leader's lease has a fencing token with which every slot is taken, so that a paused and
resumed ex-leader can no longer fire; a requested run is taken by exactly one worker.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from ematix_flow.declare.workflow import workflows
from ematix_flow.executors.protocol import DispatchSpec, Executor
from ematix_flow.foundation.clock import now as clock_now
from ematix_flow.foundation.errors import FlowError, LeaseLost
from ematix_flow.foundation.redact import mask
from ematix_flow.run_log.protocol import RunLog
from ematix_flow.run_log.records import RunRecord
from ematix_flow.run_log.worker import this_worker
from ematix_flow.scheduler.broker_triggers import BrokerTriggers
from ematix_flow.scheduler.dispatching import Dispatcher
from ematix_flow.scheduler.due import Job
from ematix_flow.scheduler.lost_runs import close_lost_runs
from ematix_flow.scheduler.queueing import DueQueue, leader_claim

ITSELF = "_scheduler"
_LOOKS_A_SECOND = 5
_CLOCK_MAY_DRIFT = 30.0
_MINUTE = 60.0
_LAST_MESSAGES = 10.0
"""The maximum seconds for received messages to be confirmed when a scheduler ends."""


@dataclass(frozen=True)
class SchedulerSettings:
    """The settings of a scheduler; times are in seconds."""

    poll_interval: float = 10.0
    lease_seconds: int = 300
    leader_lease_seconds: float = 60.0
    interval: float = 60.0
    max_workers: int = 4
    worker_id: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "worker_id", self.worker_id or this_worker())


OnEvent = Callable[[str, str, str], None]
"""Called with the kind of event, the job, and a text: the run id for runs that ended or were lost."""


class Scheduler:
    """One scheduler process of possibly several."""

    def __init__(self, jobs: Sequence[Job], run_log: RunLog, executor: Executor,
                 spec_of: Callable[[RunRecord], DispatchSpec], *, settings: SchedulerSettings, group: str = "",
                 on_event: OnEvent = lambda _kind, _name, _text: None, every_minute: Callable[[], None] = lambda: None,
                 clock: Callable[[], datetime] = clock_now) -> None:  # fmt: skip
        self.settings = settings
        self.run_log = run_log
        self.executor = executor
        self.on_event = on_event
        self.clock = clock
        self._every_minute = every_minute
        self._minute = float("-inf")
        self._leadership = leader_claim(group)
        self._token: str | None = None
        self._stands_by = False
        self._policies = {job.name: job.retry for job in jobs}
        self._queue = DueQueue(jobs, run_log, settings.interval)
        self._workers = Dispatcher(run_log, executor, self._policies, spec_of, settings.max_workers,
                                    settings.lease_seconds, on_event)  # fmt: skip
        self._listening = BrokerTriggers(workflows().values(), jobs, run_log, on_event)
        self._stopping = threading.Event()
        self._last: tuple[float, datetime] | None = None
        self._skipped: dict[str, str] = {}

    def run(self, *, max_iterations: int | None = None, sleep: Callable[[float], None] | None = None) -> None:
        """Run polling cycles until stopped; report an error of one cycle and continue with the next."""
        done = 0
        while not self._stopping.is_set() and (max_iterations is None or done < max_iterations):
            try:
                self.tick()
            except LeaseLost as error:
                self._stand_down(error.what)
            except Exception as error:
                self.on_event("tick_error", ITSELF, mask(str(getattr(error, "what", error))))
            done += 1
            if max_iterations is None or done < max_iterations:
                (sleep or self._wait)(self.settings.poll_interval)
        self.close()

    def stop(self) -> None:
        """End after the current polling cycle."""
        self._stopping.set()

    def tick(self) -> bool:
        """Run one polling cycle; return False while another scheduler leads."""
        if not self._leads():
            return False
        now, interval = self._window()
        for record, state in close_lost_runs(self.run_log, self._policies):
            self.on_event("gave_up" if state.gave_up else "lost", record.pipeline, record.run_id)
        ticked = replace(self._queue, leader=self._token).tick(now, interval=interval)
        for fire in ticked.fired:
            self.on_event("fired", fire.name, fire.slot)
        for item in ticked.skipped:
            if self._skipped.get(item.name) != item.reason:
                self.on_event("skipped", item.name, item.reason)
        self._skipped = {item.name: item.reason for item in ticked.skipped}
        self._workers.dispatch_waiting()
        if time.monotonic() - self._minute >= _MINUTE:
            self._minute = time.monotonic()
            self._every_minute()
        return True

    def close(self) -> None:
        """Release the leadership and wait for runs that would end with this process."""
        self._listening.stop(_LAST_MESSAGES)
        token, self._token = self._token, None
        if token is not None:
            try:
                self.run_log.release(token)
            except FlowError as error:  # the lease expires by itself
                self.on_event("tick_error", ITSELF, error.what)
        close = getattr(self.executor, "close", None)  # a user-defined executor may have no close()
        if close is not None:
            close(wait=True)

    def _leads(self) -> bool:
        if self._token is not None:
            if self.run_log.heartbeat(self._token, self.settings.leader_lease_seconds):
                return True
            self._stand_down("the lease was lost to another scheduler")
        claim = self.run_log.claim(self._leadership, self.settings.worker_id, self.settings.leader_lease_seconds)
        if claim.token is None:
            if not self._stands_by:
                self.on_event("standby", ITSELF, f"{claim.holder} leads")
            self._stands_by = True
            return False
        self._token, self._stands_by, self._last = claim.token, False, None
        self.on_event("leading", ITSELF, f"as {self.settings.worker_id}, number {claim.fence}")
        for name in replace(self._queue, leader=self._token).recover():
            self.on_event("recovered", name, "asked for again: its slot was taken and no worker had begun")
        self._listening.start(claim.token)
        return True

    def _stand_down(self, reason: str) -> None:
        self._token = None
        self._listening.stop()
        self._stands_by = True
        self.on_event("standby", ITSELF, reason)

    def _window(self) -> tuple[datetime, float]:
        """Return the current time, and the seconds for which past slots count: at least those since the last cycle."""
        now, passed = self.clock(), time.monotonic()
        interval = self.settings.interval
        if self._last is not None:
            by_clock, really = (now - self._last[1]).total_seconds(), passed - self._last[0]
            if abs(by_clock - really) > _CLOCK_MAY_DRIFT:
                self.on_event(
                    "clock", ITSELF, f"the clock jumped by {by_clock - really:+.0f} s; no slot is fired twice"
                )
            interval = max(interval, by_clock + 1)
        self._last = (passed, now)
        return now, interval

    def _wait(self, seconds: float) -> None:
        """Wait until the next multiple of the interval, or until a worker ends or a message requests a run."""
        rest = self.clock().timestamp() % seconds if seconds else 0.0  # no interval: no wait
        until = time.monotonic() + seconds - rest
        while time.monotonic() < until and not self._stopping.wait(1 / _LOOKS_A_SECOND):
            if self._workers.has_news() or self._listening.has_news():
                return
