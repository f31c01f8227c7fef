"""What every run log offers, wherever it keeps its lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, runtime_checkable

from ematix_flow.foundation.errors import LeaseLost, UnknownName
from ematix_flow.runlog.agenda import CRON, Action, Interval, Pause, Slot
from ematix_flow.runlog.changes import Change
from ematix_flow.runlog.records import AttemptState, LastRun, RunRecord


@dataclass(frozen=True)
class ClaimResult:
    """The answer to a claim: a token for the one who got it, the holder's name for everybody else.

    `fence` grows with every claim of the same pipeline, so that of two tokens the later one is known.
    """

    acquired: bool
    token: str | None
    holder: str
    expires_at: datetime
    fence: int | None = None

    @classmethod
    def acquired_by(cls, token: str, worker_id: str, expires_at: datetime, fence: int | None = None) -> ClaimResult:
        """The claim is yours."""
        return cls(True, token, worker_id, expires_at, fence)

    @classmethod
    def busy(cls, holder: str, expires_at: datetime) -> ClaimResult:
        """Somebody else has it."""
        return cls(False, None, holder, expires_at)


@dataclass(frozen=True)
class ExpiredClaim:
    """A claim whose holder stopped renewing it, or died."""

    pipeline: str
    worker_id: str
    expires_at: datetime


@runtime_checkable
class RunHistoryStore(Protocol):
    """The history of runs, and what people ask for."""

    def record_run_record(self, record: RunRecord) -> None:
        """Remember a run, or replace what was known of it."""

    def list_runs(
        self, *, pipeline: str | None = None, status: str | None = None, limit: int = 50, offset: int = 0
    ) -> tuple[list[RunRecord], int]:
        """Runs, the newest first, and how many there are in all."""

    def retire_runs(self, before: datetime) -> int:
        """Remove runs that began before a moment and have ended, except the newest of each pipeline; return how many."""

    def get_run(self, run_id: str) -> RunRecord | None:
        """The run of that id, or of the one id that begins so."""

    def enqueue_restart(self, prior_run_id: str, from_step: str | None) -> str:
        """Ask for that run again from a step, the failed one when none is named; the id of the new run."""

    def enqueue_rerun(self, prior_run_id: str) -> str:
        """Ask for that run again from its beginning; the id of the new run."""

    def set_pause(self, run_id: str, pause: bool) -> None:
        """Ask a run to pause at its next chance, or to go on."""

    def pending_actions(self) -> list[RunRecord]:
        """What was asked for and nobody has taken, the oldest first."""

    def consume_requested_run(self, run_id: str) -> bool:
        """Take what was asked for; True for exactly one caller."""


@runtime_checkable
class RunLog(RunHistoryStore, Protocol):
    """A place that remembers runs and grants the right to run."""

    def record_run(self, name: str, ts: datetime, success: bool) -> None:
        """Remember the last outcome of a pipeline."""

    def last_runs(self) -> dict[str, LastRun]:
        """The last outcome of every pipeline."""

    def latest_runs(self) -> dict[str, RunRecord]:
        """The newest run of every pipeline, leaving out those that are only asked for."""

    def record_attempt(self, name: str, state: AttemptState) -> None:
        """Remember how often a pipeline has failed in a row."""

    def clear_attempt_state(self, name: str) -> None:
        """Forget its failures."""

    def attempt_states(self) -> dict[str, AttemptState]:
        """The failures in a row of every pipeline that has any."""

    def restore_into_process(self) -> None:
        """Nothing needs restoring: whoever wants to know asks the store, and this process keeps no copy."""

    def claim(self, pipeline: str, worker_id: str, lease_seconds: float) -> ClaimResult:
        """Ask for the right to run a pipeline; free when nobody has it, its lease is over or its holder is dead."""

    def heartbeat(self, claim_token: str, lease_seconds: float) -> bool:
        """Renew a claim; False, and nothing changed, when the token no longer holds it."""

    def release(self, claim_token: str) -> None:
        """Give a claim back; a stale token changes nothing."""

    def sweep_expired_leases(self, now: datetime) -> list[ExpiredClaim]:
        """Remove and return the claims that nobody holds any more."""

    def take_slot(
        self, pipeline: str, slot: str, worker_id: str, *, leader: str | None = None, run_id: str = ""
    ) -> bool:
        """The right to fire one slot, granted once and for all; LeaseLost when the leader's token no longer holds."""

    def offer_run(self, record: RunRecord, *, leader: str | None = None) -> bool:
        """Remember a run unless one of this id is known; True for exactly one caller."""

    def slots(self, pipeline: str, *, limit: int = 50) -> list[Slot]:
        """What a pipeline fired, the latest first."""

    def last_slots(self, kind: str = CRON) -> dict[str, Slot]:
        """The slot of this kind that each pipeline fired last."""

    def set_paused(self, name: str, paused: bool, by: str) -> None:
        """Stop firing a pipeline, or go on; the first pause counts until it ends."""

    def paused(self) -> dict[str, Pause]:
        """Every pipeline that is paused."""

    def enqueue(self, action: Action) -> str:
        """Ask for something; the id under which it is found."""

    def change_run(self, run_id: str, change: Change, *, leader: str | None = None) -> bool:
        """Replace or remove the record of that whole id, with nobody in between; False when it stays as it is."""

    def take_action(self, action_id: str, worker_id: str, *, leader: str | None = None) -> bool:
        """True for exactly one caller: a run that was asked for is then running in this worker's name,
        anything else is gone from the queue."""

    def record_intervals(self, pipeline: str, intervals: Iterable[Interval]) -> None:
        """Remember how intervals stand; planning never takes one away from its worker."""

    def intervals(self, pipeline: str) -> list[Interval]:
        """The ledger of a pipeline, the earliest first."""

    def take_interval(
        self, pipeline: str, start: datetime, end: datetime, worker_id: str, lease_seconds: float
    ) -> bool:
        """The right to load one interval; False when it is done or somebody else works on it."""

    def renew_interval(
        self, pipeline: str, start: datetime, end: datetime, worker_id: str, lease_seconds: float
    ) -> bool:
        """Keep an interval for longer; False when this worker no longer has it."""

    def close(self) -> None:
        """Let go of whatever is open."""


def the_only_one(prefix: str, found: Sequence[RunRecord]) -> RunRecord | None:
    """The run that a prefix means; an UnknownName when it means several."""
    if len(found) > 1:
        raise UnknownName(
            f"several runs begin with {prefix!r}",
            hint="write more of it: " + ", ".join(sorted(record.run_id for record in found)[:5]),
        )
    return found[0] if found else None


def lease_lost(claim_token: str) -> LeaseLost:
    """What a worker hears that no longer leads."""
    return LeaseLost(
        f"the lease of token {claim_token[:8]}… is over or somebody else's; nothing was fired",
        hint="claim it again before going on",
    )
