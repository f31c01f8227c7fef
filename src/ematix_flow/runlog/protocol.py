"""What every run log offers, wherever it keeps its lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from ematix_flow.foundation.errors import UnknownName
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


class RunLog(Protocol):
    """A place that remembers runs and grants the right to run."""

    def record_run(self, name: str, ts: datetime, success: bool) -> None:
        """Remember the last outcome of a pipeline."""

    def last_runs(self) -> dict[str, LastRun]:
        """The last outcome of every pipeline."""

    def record_attempt(self, name: str, state: AttemptState) -> None:
        """Remember how often a pipeline has failed in a row."""

    def clear_attempt_state(self, name: str) -> None:
        """Forget its failures."""

    def attempt_states(self) -> dict[str, AttemptState]:
        """The failures in a row of every pipeline that has any."""

    def claim(self, pipeline: str, worker_id: str, lease_seconds: float) -> ClaimResult:
        """Ask for the right to run a pipeline; free when nobody has it, its lease is over or its holder is dead."""

    def heartbeat(self, claim_token: str, lease_seconds: float) -> bool:
        """Renew a claim; False, and nothing changed, when the token no longer holds it."""

    def release(self, claim_token: str) -> None:
        """Give a claim back; a stale token changes nothing."""

    def sweep_expired_leases(self, now: datetime) -> list[ExpiredClaim]:
        """Remove and return the claims that nobody holds any more."""

    def record_run_record(self, record: RunRecord) -> None:
        """Remember a run, or replace what was known of it."""

    def list_runs(
        self, *, pipeline: str | None = None, status: str | None = None, limit: int = 50, offset: int = 0
    ) -> tuple[list[RunRecord], int]:
        """Runs, the newest first, and how many there are in all."""

    def get_run(self, run_id: str) -> RunRecord | None:
        """The run of that id, or of the one id that begins so."""

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
