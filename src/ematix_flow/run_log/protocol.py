"""The interface of every run log, independent of its storage."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, runtime_checkable

from ematix_flow.foundation.errors import LeaseLost, UnknownName
from ematix_flow.run_log.records import AttemptState, Change, LastRun, RunRecord
from ematix_flow.run_log.schedule import CRON, Action, Interval, Pause, Slot


@dataclass(frozen=True)
class ClaimResult:
    """The result of a claim: a token if it was acquired, else the holder's name.

    `fence` grows with every claim of the same pipeline, so that the later of two tokens can be determined.
    """

    acquired: bool
    token: str | None
    holder: str
    expires_at: datetime
    fence: int | None = None

    @classmethod
    def acquired_by(cls, token: str, worker_id: str, expires_at: datetime, fence: int | None = None) -> ClaimResult:
        """Return the result of a successful claim."""
        return cls(True, token, worker_id, expires_at, fence)

    @classmethod
    def busy(cls, holder: str, expires_at: datetime) -> ClaimResult:
        """Return the result for a claim that another worker holds."""
        return cls(False, None, holder, expires_at)


@dataclass(frozen=True)
class ExpiredClaim:
    """A claim that its holder no longer renewed, or whose holder died."""

    pipeline: str
    worker_id: str
    expires_at: datetime


class RunReader(Protocol):
    """The reading side of a history of runs."""

    def list_runs(
        self, *, pipeline: str | None = None, status: str | None = None, limit: int = 50, offset: int = 0
    ) -> tuple[list[RunRecord], int]:
        """Return a page of runs, the newest first, and the number of all matching runs."""

    def get_run(self, run_id: str) -> RunRecord | None:
        """Return the run with that id or unique id prefix; None if there is none."""

    def pending_actions(self) -> list[RunRecord]:
        """Return the requests that no worker has taken, the oldest first."""


@runtime_checkable
class RunHistoryStore(RunReader, Protocol):
    """The history of runs, and the requests of users."""

    def record_run_record(self, record: RunRecord) -> None:
        """Insert or replace the record of a run."""

    def enqueue_restart(self, prior_run_id: str, from_step: str | None) -> str:
        """Request that run again from a step, by default the failed one; return the id of the new run."""

    def enqueue_rerun(self, prior_run_id: str) -> str:
        """Request that run again from its beginning; return the id of the new run."""

    def set_pause(self, run_id: str, pause: bool) -> None:
        """Request that a run pauses at its next opportunity, or continues."""

    def consume_requested_run(self, run_id: str) -> bool:
        """Take a requested run; return True to exactly one caller."""


class RunLogReader(RunReader, Protocol):
    """The reading side of a run log: all that status, freshness and the decision about due jobs need."""

    def last_runs(self) -> dict[str, LastRun]:
        """Return the last outcome of every pipeline."""

    def latest_runs(self) -> dict[str, RunRecord]:
        """Return the newest run of every pipeline, without runs that are only requested."""

    def attempt_states(self) -> dict[str, AttemptState]:
        """Return the consecutive failures of every pipeline that has any."""

    def slots(self, pipeline: str, *, limit: int = 50) -> list[Slot]:
        """Return the slots that a pipeline fired, the latest first."""

    def last_slots(self, kind: str = CRON) -> dict[str, Slot]:
        """Return the slot of this kind that each pipeline fired last."""

    def paused(self) -> dict[str, Pause]:
        """Return every paused pipeline and workflow, by name."""

    def intervals(self, pipeline: str) -> list[Interval]:
        """Return the intervals of a pipeline, the earliest first."""


class ClaimStore(Protocol):
    """Grants the right to run a pipeline."""

    def claim(self, pipeline: str, worker_id: str, lease_seconds: float) -> ClaimResult:
        """Claim the right to run a pipeline; it is free if unclaimed, expired, or held by a dead worker."""

    def heartbeat(self, claim_token: str, lease_seconds: float) -> bool:
        """Renew a claim; return False, and change nothing, if the token no longer holds it."""

    def release(self, claim_token: str) -> None:
        """Release a claim; a stale token changes nothing."""

    def sweep_expired_leases(self, now: datetime) -> list[ExpiredClaim]:
        """Delete and return the claims that have expired or whose holder is dead."""


class ScheduleStore(Protocol):
    """Grants slots, requested runs and windows, each to one caller."""

    def take_slot(
        self,
        pipeline: str,
        slot: str,
        worker_id: str,
        *,
        leader: str | None = None,
        run_id: str = "",
        fired_at: datetime | None = None,
    ) -> bool:
        """Take the right to fire one slot, which is granted once; raise LeaseLost if the leader's token has expired."""

    def offer_run(self, record: RunRecord, *, leader: str | None = None) -> bool:
        """Insert a run unless its id is known; return True to one caller only. Raise LeaseLost for a stale leader."""

    def set_paused(self, name: str, paused: bool, by: str) -> None:
        """Pause or unpause a pipeline or workflow; a second pause does not replace the first."""

    def enqueue(self, action: Action) -> str:
        """Record an action as a request; return the id of its record."""

    def change_run(self, run_id: str, change: Change, *, leader: str | None = None) -> bool:
        """Atomically replace or delete the record with exactly that id; return False if it stays unchanged."""

    def take_action(self, action_id: str, worker_id: str, *, leader: str | None = None) -> bool:
        """Take a request; return True to one caller only. A requested run becomes this worker's, others are deleted."""

    def record_intervals(self, pipeline: str, intervals: Iterable[Interval]) -> None:
        """Write the states of intervals; planning never takes an interval away from its worker."""

    def take_interval(
        self, pipeline: str, start: datetime, end: datetime, worker_id: str, lease_seconds: float
    ) -> bool:
        """Claim one interval for loading; return False if it is done or held by another worker."""

    def renew_interval(
        self, pipeline: str, start: datetime, end: datetime, worker_id: str, lease_seconds: float
    ) -> bool:
        """Extend the lease of an interval; return False if this worker no longer holds it."""


@runtime_checkable
class RunLog(RunLogReader, RunHistoryStore, ClaimStore, ScheduleStore, Protocol):
    """A store of runs that also grants the right to run pipelines."""

    def record_run(self, name: str, ts: datetime, success: bool) -> None:
        """Record the last outcome of a pipeline."""

    def record_attempt(self, name: str, state: AttemptState) -> None:
        """Record the number of consecutive failures of a pipeline."""

    def clear_attempt_state(self, name: str) -> None:
        """Delete the recorded failures of a pipeline."""

    def retire_runs(self, before: datetime) -> int:
        """Delete ended runs that began before a moment, except the newest of each pipeline; return how many."""

    def restore_into_process(self) -> None:
        """Do nothing: every method queries the store, and this process keeps no copy."""

    def close(self) -> None:
        """Close all open connections."""


def only_match(prefix: str, records: Sequence[RunRecord]) -> RunRecord | None:
    """Return the only run found for an id prefix, or None; raise an UnknownName if there are several."""
    if len(records) > 1:
        raise UnknownName(
            f"several runs begin with {prefix!r}",
            hint="write more of it: " + ", ".join(sorted(record.run_id for record in records)[:5]),
        )
    return records[0] if records else None


def lease_lost_error(claim_token: str) -> LeaseLost:
    """Return the error for a worker whose leader token is no longer valid."""
    return LeaseLost(
        f"the lease of token {claim_token[:8]}… has expired or belongs to another process; nothing was fired",
        hint="claim it again before going on",
    )
