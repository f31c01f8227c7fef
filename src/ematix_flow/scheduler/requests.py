"""Requests of people: retry, restart, resume, pause, cancel."""

from __future__ import annotations

import getpass
import os
import signal
from contextlib import suppress
from dataclasses import dataclass

from ematix_flow.foundation.errors import DeclarationError, UnknownName
from ematix_flow.run_log.protocol import RunLog
from ematix_flow.run_log.records import FINISHED, RecordFate, RunRecord, closed_record
from ematix_flow.run_log.schedule import Action
from ematix_flow.run_log.worker import has_dead_worker, is_dead, this_worker, worker_of

STOPPED, ASKED, NEVER_BEGUN = "stopped", "asked", "never begun"


def current_user() -> str:
    """Return the name of the requesting user, or the worker id if there is no user name."""
    with suppress(KeyError, OSError):
        return getpass.getuser()
    return this_worker()


@dataclass(frozen=True)
class RequestedRun:
    """A requested run."""

    run_id: str
    pipeline: str


def request_retry(run_log: RunLog, name: str) -> RequestedRun:
    """Request another attempt of a job, and clear its earlier failures."""
    run_log.clear_attempt_state(name)
    return _enqueued(run_log, Action("retry", name, by=current_user()))


def request_restart(run_log: RunLog, run_id: str, *, from_step: str | None = None) -> RequestedRun:
    """Request that run again, from the given step, or from the one at which it failed."""
    prior = _ended(run_log, run_id)
    step = from_step or prior.failed_step
    return _enqueued(run_log, Action("restart", prior.pipeline, prior.run_id, step, by=current_user()))


def request_resume(run_log: RunLog, run_id: str) -> RequestedRun:
    """Request a continuation of that run: its load from the last committed watermark, or its transforms."""
    prior = _ended(run_log, run_id)
    if prior.status == "succeeded":
        raise DeclarationError(
            f"run {prior.run_id[:8]} has succeeded: there is nothing to resume",
            hint=f"run it again with flow runs restart {prior.run_id[:8]}",
        )
    return _enqueued(run_log, Action("resume", prior.pipeline, prior.run_id, prior.failed_step, by=current_user()))


def pause_pipeline(run_log: RunLog, name: str) -> None:
    """Stop firing the job until it is unpaused."""
    run_log.set_paused(name, True, current_user())


def unpause_pipeline(run_log: RunLog, name: str) -> None:
    """Allow the job to fire again."""
    run_log.set_paused(name, False, current_user())


@dataclass(frozen=True)
class CancelResult:
    """The result of a request to stop a run."""

    record: RunRecord
    how: str


def cancel_run(run_log: RunLog, run_id: str) -> CancelResult:
    """Withdraw a waiting run, stop one of a process on this machine, or else record a cancel request for its worker."""
    record = _require_run(run_log, run_id)
    if record.status in FINISHED:
        raise DeclarationError(f"run {record.run_id[:8]} has ended: {record.status}", hint="see: flow runs list")
    if record.status == "requested" and run_log.change_run(record.run_id, _withdrawn_record):
        return CancelResult(record, NEVER_BEGUN)
    worker = str(record.extras.get("worker") or "")
    pid = worker.split(":")[1] if worker.count(":") >= 2 else ""
    is_shared = bool(record.extras.get("inprocess"))  # with other runs, which must not end with it
    if pid.isdigit() and not is_dead(worker) and worker_of(int(pid)) == worker and not is_shared:
        os.kill(int(pid), signal.SIGTERM)
        return CancelResult(record, STOPPED)
    run_log.enqueue(Action("cancel", record.pipeline, record.run_id, by=current_user()))
    return CancelResult(record, ASKED)


def _enqueued(run_log: RunLog, action: Action) -> RequestedRun:
    return RequestedRun(run_log.enqueue(action), action.pipeline)


def _withdrawn_record(record: RunRecord) -> RunRecord | RecordFate:
    if record.status != "requested":
        return RecordFate.KEPT
    return closed_record(record, "cancelled", f"cancelled by {current_user()}")


def _ended(run_log: RunLog, run_id: str) -> RunRecord:
    record = _require_run(run_log, run_id)
    if record.status not in FINISHED and not has_dead_worker(record):
        raise DeclarationError(
            f"run {record.run_id[:8]} has not ended: {record.status}", hint=f"flow runs cancel {record.run_id[:8]}"
        )
    return record


def _require_run(run_log: RunLog, run_id: str) -> RunRecord:
    record = run_log.get_run(run_id)
    if record is None:
        raise UnknownName(f"no run is called {run_id!r}", hint="see them all: flow runs list")
    return record
