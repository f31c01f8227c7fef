"""Requests as runs with the status requested, for any store that changes a record atomically."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any

from ematix_flow.foundation.clock import now
from ematix_flow.foundation.errors import UnknownName
from ematix_flow.run_log.records import FINISHED, Change, RecordFate, RunRecord
from ematix_flow.run_log.schedule import Action
from ematix_flow.run_log.worker import this_worker

_MOST_PENDING = 10_000


class RunRequests(ABC):
    """The queue of actions, and the pausing of a run."""

    @abstractmethod
    def record_run_record(self, record: RunRecord) -> None:
        """Insert or replace the record of a run."""

    @abstractmethod
    def get_run(self, run_id: str) -> RunRecord | None:
        """Return the run with that id or unique id prefix; None if there is none."""

    @abstractmethod
    def list_runs(
        self, *, pipeline: str | None = None, status: str | None = None, limit: int = 50, offset: int = 0
    ) -> tuple[list[RunRecord], int]:
        """Return a page of runs, the newest first, and the number of all matching runs."""

    @abstractmethod
    def change_run(self, run_id: str, change: Change, *, leader: str | None = None) -> bool:
        """Atomically replace or delete the record with exactly that id; return False if it stays unchanged."""

    def enqueue(self, action: Action) -> str:
        """Record an action as a request; return the id of its record."""
        run_id = str(uuid.uuid4())
        self.record_run_record(action.to_record(run_id, now()))
        return run_id

    def enqueue_restart(self, prior_run_id: str, from_step: str | None) -> str:
        """Request that run again from a step, by default the failed one; return the id of the new run."""
        prior = self._prior(prior_run_id)
        return self.enqueue(Action("restart", prior.pipeline, prior.run_id, from_step or prior.failed_step))

    def enqueue_rerun(self, prior_run_id: str) -> str:
        """Request that run again from its beginning; return the id of the new run."""
        prior = self._prior(prior_run_id)
        return self.enqueue(Action("rerun", prior.pipeline, prior.run_id))

    def pending_actions(self) -> list[RunRecord]:
        """Return the requests that no worker has taken, the oldest first."""
        newest_first, _ = self.list_runs(status="requested", limit=_MOST_PENDING)
        return newest_first[::-1]

    def take_action(self, action_id: str, worker_id: str, *, leader: str | None = None) -> bool:
        """Take a request; return True to one caller only. A requested run becomes this worker's, others are deleted."""

        def taken(record: RunRecord) -> RunRecord | RecordFate:
            if record.status != "requested":
                return RecordFate.KEPT
            if not Action.of(record).starts_a_run:
                return RecordFate.REMOVED
            return replace(record, status="running", extras={**record.extras, "worker": worker_id})

        return self.change_run(action_id, taken, leader=leader)

    def consume_requested_run(self, run_id: str) -> bool:
        """Take a requested run; return True to exactly one caller."""
        return self.take_action(run_id, this_worker())

    def set_pause(self, run_id: str, pause: bool) -> None:
        """Request that a run pauses at its next opportunity, or continues, by `pause_requested` in its extras."""

        def asked(record: RunRecord) -> RunRecord | RecordFate:
            if record.status in FINISHED:
                return RecordFate.KEPT
            extras: dict[str, Any] = {**record.extras, "pause_requested": pause}
            status = "running" if record.status == "paused" and not pause else record.status
            return replace(record, status=status, extras=extras)

        self.change_run(self._prior(run_id).run_id, asked)

    def restore_into_process(self) -> None:
        """Do nothing: every method queries the store, and this process keeps no copy."""
        return

    def _prior(self, run_id: str) -> RunRecord:
        record = self.get_run(run_id)
        if record is None:
            raise UnknownName(f"no run is called {run_id!r}", hint="see them all: flow runs list")
        return record
