"""What people ask for: runs with the status requested, on any store that changes a record in one step."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any

from ematix_flow.foundation.clock import now
from ematix_flow.foundation.errors import UnknownName
from ematix_flow.runlog.agenda import Action
from ematix_flow.runlog.changes import Change, Fate
from ematix_flow.runlog.records import FINISHED, RunRecord
from ematix_flow.runlog.worker import this_worker

_MOST_PENDING = 10_000


class RequestedRuns(ABC):
    """The queue of actions, and pausing a run."""

    @abstractmethod
    def record_run_record(self, record: RunRecord) -> None:
        """Remember a run, or replace what was known of it."""

    @abstractmethod
    def get_run(self, run_id: str) -> RunRecord | None:
        """The run of that id, or of the one id that begins so."""

    @abstractmethod
    def list_runs(
        self, *, pipeline: str | None = None, status: str | None = None, limit: int = 50, offset: int = 0
    ) -> tuple[list[RunRecord], int]:
        """Runs, the newest first, and how many there are in all."""

    @abstractmethod
    def change_run(self, run_id: str, change: Change, *, leader: str | None = None) -> bool:
        """Replace or remove the record of that whole id, with nobody in between; False when it stays as it is."""

    def enqueue(self, action: Action) -> str:
        """Ask for something; the id under which it is found."""
        run_id = str(uuid.uuid4())
        self.record_run_record(action.to_record(run_id, now()))
        return run_id

    def enqueue_restart(self, prior_run_id: str, from_step: str | None) -> str:
        """Ask for that run again from a step, the failed one when none is named; the id of the new run."""
        prior = self._prior(prior_run_id)
        return self.enqueue(Action("restart", prior.pipeline, prior.run_id, from_step or prior.failed_step))

    def enqueue_rerun(self, prior_run_id: str) -> str:
        """Ask for that run again from its beginning; the id of the new run."""
        prior = self._prior(prior_run_id)
        return self.enqueue(Action("rerun", prior.pipeline, prior.run_id))

    def pending_actions(self) -> list[RunRecord]:
        """What was asked for and nobody has taken, the oldest first."""
        newest_first, _ = self.list_runs(status="requested", limit=_MOST_PENDING)
        return newest_first[::-1]

    def take_action(self, action_id: str, worker_id: str, *, leader: str | None = None) -> bool:
        """True for exactly one caller: a run that was asked for is then running in this worker's name,
        anything else is gone from the queue."""

        def taken(record: RunRecord) -> RunRecord | Fate:
            if record.status != "requested":
                return Fate.KEPT
            if not Action.of(record).starts_a_run:
                return Fate.REMOVED
            return replace(record, status="running", extras={**record.extras, "worker": worker_id})

        return self.change_run(action_id, taken, leader=leader)

    def consume_requested_run(self, run_id: str) -> bool:
        """Take what was asked for; True for exactly one caller."""
        return self.take_action(run_id, this_worker())

    def set_pause(self, run_id: str, pause: bool) -> None:
        """Ask a run to pause at its next chance, or to go on: `pause_requested` in its extras says so."""

        def asked(record: RunRecord) -> RunRecord | Fate:
            if record.status in FINISHED:
                return Fate.KEPT
            extras: dict[str, Any] = {**record.extras, "pause_requested": pause}
            status = "running" if record.status == "paused" and not pause else record.status
            return replace(record, status=status, extras=extras)

        self.change_run(self._prior(run_id).run_id, asked)

    def restore_into_process(self) -> None:
        """Nothing needs restoring: whoever wants to know asks the store, and this process keeps no copy."""
        return

    def _prior(self, run_id: str) -> RunRecord:
        found = self.get_run(run_id)
        if found is None:
            raise UnknownName(f"no run is called {run_id!r}", hint="see them all: flow runs list")
        return found
