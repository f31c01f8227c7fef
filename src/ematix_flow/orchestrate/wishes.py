"""What people ask for: again, from a step, not now, no more. The command line and the page call the same functions."""

from __future__ import annotations

import getpass
import os
import signal
from contextlib import suppress
from dataclasses import dataclass

from ematix_flow.foundation.errors import DeclarationError, UnknownName
from ematix_flow.runlog.agenda import Action
from ematix_flow.runlog.changes import Fate, closed
from ematix_flow.runlog.protocol import RunLog
from ematix_flow.runlog.records import FINISHED, RunRecord
from ematix_flow.runlog.worker import is_dead, this_worker, worker_of

STOPPED, ASKED, NEVER_BEGUN = "stopped", "asked", "never begun"


def somebody() -> str:
    """Who asks, for the record."""
    with suppress(KeyError, OSError):
        return getpass.getuser()
    return this_worker()


@dataclass(frozen=True)
class Asked:
    """A run that somebody asks for."""

    run_id: str
    pipeline: str


def retry(run_log: RunLog, name: str) -> Asked:
    """Try a job again whatever failed before."""
    run_log.clear_attempt_state(name)
    return _enqueued(run_log, Action("retry", name, by=somebody()))


def restart(run_log: RunLog, run_id: str, *, from_step: str | None = None) -> Asked:
    """That run again, from a step, or from the one it failed at."""
    prior = _ended(run_log, run_id)
    step = from_step or prior.failed_step
    return _enqueued(run_log, Action("restart", prior.pipeline, prior.run_id, step, by=somebody()))


def resume(run_log: RunLog, run_id: str) -> Asked:
    """Go on where that run ended: its load from the last watermark that was committed, or its transforms."""
    prior = _ended(run_log, run_id)
    if prior.status == "succeeded":
        raise DeclarationError(
            f"run {prior.run_id[:8]} has succeeded: there is nothing to resume",
            hint=f"run it again with flow runs restart {prior.run_id[:8]}",
        )
    return _enqueued(run_log, Action("resume", prior.pipeline, prior.run_id, prior.failed_step, by=somebody()))


def pause(run_log: RunLog, name: str) -> None:
    """Do not fire it until somebody says so."""
    run_log.set_paused(name, True, somebody())


def unpause(run_log: RunLog, name: str) -> None:
    """Fire it again."""
    run_log.set_paused(name, False, somebody())


@dataclass(frozen=True)
class Cancelled:
    """What became of a wish to stop a run."""

    record: RunRecord
    how: str


def cancel(run_log: RunLog, run_id: str) -> Cancelled:
    """A run that waits is taken out of the queue; one of a process here is stopped; others are asked to stop."""
    record = _known(run_log, run_id)
    if record.status in FINISHED:
        raise DeclarationError(f"run {record.run_id[:8]} has ended: {record.status}", hint="see: flow runs list")
    if record.status == "requested" and run_log.change_run(record.run_id, _taken_back):
        return Cancelled(record, NEVER_BEGUN)
    worker = str(record.extras.get("worker") or "")
    pid = worker.split(":")[1] if worker.count(":") >= 2 else ""
    if pid.isdigit() and not is_dead(worker) and worker_of(int(pid)) == worker and not _is_shared(record):
        os.kill(int(pid), signal.SIGTERM)
        return Cancelled(record, STOPPED)
    run_log.enqueue(Action("cancel", record.pipeline, record.run_id, by=somebody()))
    return Cancelled(record, ASKED)


def _enqueued(run_log: RunLog, action: Action) -> Asked:
    return Asked(run_log.enqueue(action), action.pipeline)


def _is_shared(record: RunRecord) -> bool:
    """Whether other runs live in the same process."""
    return bool(record.extras.get("inprocess"))


def _taken_back(record: RunRecord) -> RunRecord | Fate:
    if record.status != "requested":
        return Fate.KEPT
    return closed(record, "cancelled", f"cancelled by {somebody()}")


def _ended(run_log: RunLog, run_id: str) -> RunRecord:
    record = _known(run_log, run_id)
    worker = str(record.extras.get("worker") or "")
    if record.status not in FINISHED and not (worker and is_dead(worker)):
        raise DeclarationError(
            f"run {record.run_id[:8]} has not ended: {record.status}", hint=f"flow runs cancel {record.run_id[:8]}"
        )
    return record


def _known(run_log: RunLog, run_id: str) -> RunRecord:
    record = run_log.get_run(run_id)
    if record is None:
        raise UnknownName(f"no run is called {run_id!r}", hint="see them all: flow runs list")
    return record
