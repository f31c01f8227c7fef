"""The run log in this process's memory: gone when it ends."""

from __future__ import annotations

import threading
import uuid
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from ematix_flow.foundation.clock import now as clock_now
from ematix_flow.runlog.protocol import ClaimResult, ExpiredClaim, the_only_one
from ematix_flow.runlog.records import AttemptState, LastRun, RunRecord, in_utc
from ematix_flow.runlog.worker import is_dead


@dataclass(frozen=True)
class _Claim:
    token: str
    worker_id: str
    expires_at: datetime

    def is_free(self, moment: datetime) -> bool:
        return self.expires_at <= moment or is_dead(self.worker_id)


class InMemoryRunLog:
    """A run log for tests and for one process.

    >>> log = InMemoryRunLog()
    >>> log.claim("load_orders", "host:1:0", 60).acquired, log.claim("load_orders", "host:2:0", 60).acquired
    (True, False)
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._runs: dict[str, LastRun] = {}
        self._attempts: dict[str, AttemptState] = {}
        self._claims: dict[str, _Claim] = {}
        self._fences: dict[str, int] = {}
        self._records: dict[str, RunRecord] = {}

    def close(self) -> None:
        """Nothing is open; what is known stays known."""

    def record_run(self, name: str, ts: datetime, success: bool) -> None:
        """Remember the last outcome of a pipeline."""
        with self._lock:
            self._runs[name] = LastRun(in_utc(ts), success)

    def last_runs(self) -> dict[str, LastRun]:
        """The last outcome of every pipeline."""
        with self._lock:
            return dict(self._runs)

    def record_attempt(self, name: str, state: AttemptState) -> None:
        """Remember how often a pipeline has failed in a row."""
        with self._lock:
            self._attempts[name] = replace(state, last_attempt_at=in_utc(state.last_attempt_at))

    def clear_attempt_state(self, name: str) -> None:
        """Forget its failures."""
        with self._lock:
            self._attempts.pop(name, None)

    def attempt_states(self) -> dict[str, AttemptState]:
        """The failures in a row of every pipeline that has any."""
        with self._lock:
            return dict(self._attempts)

    def claim(self, pipeline: str, worker_id: str, lease_seconds: float) -> ClaimResult:
        """Ask for the right to run a pipeline; free when nobody has it, its lease is over or its holder is dead."""
        with self._lock:
            moment = clock_now()
            held = self._claims.get(pipeline)
            if held is not None and not held.is_free(moment):
                return ClaimResult.busy(held.worker_id, held.expires_at)
            fence = self._fences[pipeline] = self._fences.get(pipeline, 0) + 1
            claim = _Claim(f"{fence}-{uuid.uuid4().hex}", worker_id, moment + timedelta(seconds=lease_seconds))
            self._claims[pipeline] = claim
            return ClaimResult.acquired_by(claim.token, worker_id, claim.expires_at, fence)

    def heartbeat(self, claim_token: str, lease_seconds: float) -> bool:
        """Renew a claim; False, and nothing changed, when the token no longer holds it."""
        with self._lock:
            pipeline = self._pipeline_of(claim_token)
            if pipeline is None:
                return False
            expires = clock_now() + timedelta(seconds=lease_seconds)
            self._claims[pipeline] = replace(self._claims[pipeline], expires_at=expires)
            return True

    def release(self, claim_token: str) -> None:
        """Give a claim back; a stale token changes nothing."""
        with self._lock:
            pipeline = self._pipeline_of(claim_token)
            if pipeline is not None:
                del self._claims[pipeline]

    def sweep_expired_leases(self, now: datetime) -> list[ExpiredClaim]:
        """Remove and return the claims that nobody holds any more."""
        with self._lock:
            gone = {name: claim for name, claim in self._claims.items() if claim.is_free(in_utc(now))}
            for name in gone:
                del self._claims[name]
            return [ExpiredClaim(name, claim.worker_id, claim.expires_at) for name, claim in gone.items()]

    def record_run_record(self, record: RunRecord) -> None:
        """Remember a run, or replace what was known of it."""
        with self._lock:
            self._records[record.run_id] = record

    def list_runs(
        self, *, pipeline: str | None = None, status: str | None = None, limit: int = 50, offset: int = 0
    ) -> tuple[list[RunRecord], int]:
        """Runs, the newest first, and how many there are in all."""
        with self._lock:
            wanted = [
                record
                for record in self._records.values()
                if pipeline in (None, record.pipeline) and status in (None, record.status)
            ]
        wanted.sort(key=lambda record: (record.started_at, record.run_id), reverse=True)
        start = max(offset, 0)
        return wanted[start : start + max(limit, 0)], len(wanted)

    def get_run(self, run_id: str) -> RunRecord | None:
        """The run of that id, or of the one id that begins so."""
        with self._lock:
            exact = self._records.get(run_id)
            found = [exact] if exact else [record for key, record in self._records.items() if key.startswith(run_id)]
        return the_only_one(run_id, found)

    def _pipeline_of(self, token: str) -> str | None:
        return next((name for name, claim in self._claims.items() if claim.token == token), None)
