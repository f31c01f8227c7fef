"""The dispatcher: starts workers for requested runs, and detects workers that ended before they took their run."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ematix_flow.declare.retry import RetryPolicy
from ematix_flow.executors.protocol import DispatchError, DispatchHandle, DispatchSpec, Executor
from ematix_flow.foundation.clock import now as clock_now
from ematix_flow.foundation.redact import mask
from ematix_flow.run_log.protocol import RunLog
from ematix_flow.run_log.records import RecordFate, RunRecord, closed_record
from ematix_flow.run_log.schedule import Action
from ematix_flow.scheduler.job_facts import is_running, jobs_to_retry, waits_for_retry
from ematix_flow.scheduler.requested_runs import record_attempt_outcome

_TRIES = 3


@dataclass
class _DispatchedRun:
    handle: DispatchHandle
    since: float = field(default_factory=time.monotonic)


@dataclass
class Dispatcher:
    """The dispatcher of one leader, with the workers that it has started."""

    run_log: RunLog
    executor: Executor
    policies: Mapping[str, RetryPolicy]
    spec_of: Callable[[RunRecord], DispatchSpec]
    max_workers: int
    lease_seconds: float
    report: Callable[[str, str, str], None] = lambda _kind, _name, _text: None
    """Called with an event and its job: `dispatched`, `ended` (with the run id), `dispatch_failed` or `cancelled`."""
    workers: dict[str, _DispatchedRun] = field(default_factory=dict)
    _tries: dict[str, int] = field(default_factory=dict)

    def dispatch_waiting(self) -> int:
        """Start workers for waiting runs, the oldest first; return how many were started."""
        pending = self.run_log.pending_actions()
        self._cancel([record for record in pending if not Action.of(record).starts_a_run])
        waiting = [record for record in pending if record.pipeline in self.policies and Action.of(record).starts_a_run]
        self._drop_finished({record.run_id for record in waiting})
        self._tries = {record.run_id: self._tries[record.run_id] for record in waiting if record.run_id in self._tries}
        if not waiting:
            return 0
        busy = self._busy()
        paused, retried = self.run_log.paused(), jobs_to_retry(self.run_log, self.policies)
        started = 0
        for record in waiting:
            if len(busy) >= self.max_workers:
                break
            name = record.pipeline
            if name in busy or name in paused or record.run_id in self.workers:
                continue
            if name in retried and waits_for_retry(record):
                continue
            if self._start(record):
                busy.add(name)
                started += 1
        return started

    def has_news(self) -> bool:
        """Return whether a worker has ended since the last dispatch."""
        return any(self._has_ended(worker.handle) for worker in self.workers.values())

    @property
    def is_idle(self) -> bool:
        """Return whether no worker of this leader is running."""
        return not self.workers

    def _has_ended(self, handle: DispatchHandle) -> bool | None:
        """Return whether a worker has ended; None for a user-defined executor without `has_ended`."""
        ask = getattr(self.executor, "has_ended", None)
        return ask(handle) if ask is not None else None

    def _busy(self) -> set[str]:
        """Return the jobs that run, whichever process started them, and those whose worker has been dispatched."""
        names = {worker.handle.pipeline_name for worker in self.workers.values()}
        for name, record in self.run_log.latest_runs().items():
            if name in self.policies and is_running(record):
                names.add(name)
        return names

    def _start(self, record: RunRecord) -> bool:
        try:
            handle = self.executor.dispatch(self.spec_of(record))
        except DispatchError as error:
            next_step = f" ({error.hint})" if error.hint else ""
            self._count_try(record, mask(error.what + next_step), is_last=not error.retryable)
            return False
        self.workers[record.run_id] = _DispatchedRun(handle)
        self.report("dispatched", record.pipeline, handle.backend)
        return True

    def _drop_finished(self, waiting: set[str]) -> None:
        for run_id, worker in list(self.workers.items()):
            has_ended = self._has_ended(worker.handle)
            if has_ended is None:  # the executor cannot report it: the worker has the length of a lease to take the run
                has_ended = run_id not in waiting or time.monotonic() - worker.since > self.lease_seconds
            if not has_ended:
                continue
            del self.workers[run_id]
            self.report("ended", worker.handle.pipeline_name, run_id)
            record = self.run_log.get_run(run_id) if run_id in waiting else None
            if record is not None and record.status == "requested":
                self._count_try(record, "its worker ended before it had taken the run")

    def _count_try(self, record: RunRecord, reason: str, *, is_last: bool = False) -> None:
        """Count a failed start of a worker; after the last allowed one, close the run as failed."""
        tries = self._tries[record.run_id] = self._tries.get(record.run_id, 0) + 1
        self.report("dispatch_failed", record.pipeline, reason)
        if tries < _TRIES and not is_last:
            return
        del self._tries[record.run_id]
        error = DispatchError(f"no worker began the run in {tries} attempts: {reason}")
        if self.run_log.change_run(record.run_id, lambda known: _never_started_record(known, error)):
            policy = self.policies[record.pipeline]
            record_attempt_outcome(
                self.run_log, record.pipeline, policy, attempt=record.attempt, error=error, at=clock_now()
            )
            self.run_log.record_run(record.pipeline, clock_now(), False)

    def _cancel(self, requests: list[RunRecord]) -> None:
        for request in requests:
            run_id = Action.of(request).run_id
            worker = self.workers.get(run_id or "")
            if worker is None:
                continue  # belongs to another scheduler, or `flow runs cancel` on this machine has stopped it
            try:
                self.executor.cancel(worker.handle)
            except DispatchError as error:  # the request stays and is tried again
                self.report("dispatch_failed", request.pipeline, mask(error.what))
                continue
            if self.run_log.take_action(request.run_id, worker.handle.backend):
                self.report("cancelled", request.pipeline, str(run_id))


def _never_started_record(record: RunRecord, error: DispatchError) -> RunRecord | RecordFate:
    if record.status != "requested":
        return RecordFate.KEPT
    return closed_record(record, "failed", mask(error.what), error.to_dict())
