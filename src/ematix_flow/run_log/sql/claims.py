"""Claims in a table: one row per pipeline, checked and changed in one transaction."""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta

from ematix_flow.run_log.protocol import ClaimResult, ExpiredClaim, lease_lost_error
from ematix_flow.run_log.records import from_text, in_utc, to_text
from ematix_flow.run_log.sql.base import SqlStore, retry_on_conflict
from ematix_flow.run_log.sql.dialect import RunLogSession
from ematix_flow.run_log.worker import is_dead


class SqlClaims(SqlStore):
    """The claims of a run log in a SQL database."""

    @retry_on_conflict
    def claim(self, pipeline: str, worker_id: str, lease_seconds: float) -> ClaimResult:
        """Claim the right to run a pipeline; it is free if unclaimed, expired, or held by a dead worker."""
        with self._transaction() as sql:
            fence = _lock_fence(sql, pipeline)
            moment = sql.now()  # read after the lock is held: waiting for it must not shorten the lease
            held = sql.one(
                f"SELECT worker_id, expires_at FROM $pipeline_claims WHERE pipeline_name = ?{sql.dialect.row_lock}",
                pipeline,
            )
            if held is not None and not _is_free(held[0], held[1], moment):
                return ClaimResult.busy(held[0], from_text(held[1]))
            sql.run("UPDATE $claim_fences SET fence = ? WHERE pipeline_name = ?", fence + 1, pipeline)
            token = f"{fence + 1}-{uuid.uuid4().hex}"
            expires = moment + timedelta(seconds=lease_seconds)
            row = {
                "pipeline_name": pipeline,
                "claim_token": token,
                "worker_id": worker_id,
                "claimed_at": to_text(moment),
                "expires_at": to_text(expires),
            }
            sql.put("pipeline_claims", row, key=["pipeline_name"])
        return ClaimResult.acquired_by(token, worker_id, expires, fence + 1)

    @retry_on_conflict
    def heartbeat(self, claim_token: str, lease_seconds: float) -> bool:
        """Renew a claim; return False, and change nothing, if the token no longer holds it."""
        with self._transaction() as sql:
            if (
                sql.one(f"SELECT 1 FROM $pipeline_claims WHERE claim_token = ?{sql.dialect.row_lock}", claim_token)
                is None
            ):
                return False
            expires = to_text(sql.now() + timedelta(seconds=lease_seconds))
            sql.run("UPDATE $pipeline_claims SET expires_at = ? WHERE claim_token = ?", expires, claim_token)
        return True

    @retry_on_conflict
    def release(self, claim_token: str) -> None:
        """Release a claim; a stale token changes nothing."""
        with self._transaction() as sql:
            sql.run("DELETE FROM $pipeline_claims WHERE claim_token = ?", claim_token)

    @retry_on_conflict
    def sweep_expired_leases(self, now: datetime) -> list[ExpiredClaim]:
        """Delete and return the claims that have expired or whose holder is dead."""
        with self._transaction() as sql:
            # A caller whose clock is ahead of the store's must not delete claims that are still held.
            moment = min(in_utc(now), sql.now()) if sql.dialect.has_clock else in_utc(now)
            rows = sql.rows(
                "SELECT pipeline_name, claim_token, worker_id, expires_at FROM $pipeline_claims "
                f"ORDER BY pipeline_name{sql.dialect.row_lock}"
            )
            gone = [row for row in rows if _is_free(row[2], row[3], moment)]
            for row in gone:
                sql.run("DELETE FROM $pipeline_claims WHERE claim_token = ?", row[1])
        return [ExpiredClaim(row[0], row[2], from_text(row[3])) for row in gone]


def require_leadership(sql: RunLogSession, leader: str | None) -> None:
    """Raise LeaseLost unless the leader's token is valid now; it stays valid until this transaction ends."""
    if leader is None:
        return
    held = sql.one(f"SELECT expires_at FROM $pipeline_claims WHERE claim_token = ?{sql.dialect.row_lock}", leader)
    if held is None or from_text(held[0]) <= sql.now():
        raise lease_lost_error(leader)


def _lock_fence(sql: RunLogSession, pipeline: str) -> int:
    """Return the last fence and lock its row; the holder of that lock decides about the claim."""
    sql.add("claim_fences", {"pipeline_name": pipeline, "fence": 0})
    row = sql.one(f"SELECT fence FROM $claim_fences WHERE pipeline_name = ?{sql.dialect.row_lock}", pipeline)
    return int(row[0]) if row else 0


def _is_free(worker_id: str, expires_at: str, moment: datetime) -> bool:
    return from_text(expires_at) <= moment or is_dead(worker_id)
