"""Claims as objects: one per pipeline, replaced only if it is unchanged since it was read."""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta

from ematix_flow.foundation.clock import now as clock_now
from ematix_flow.run_log.blob.keys import encode
from ematix_flow.run_log.blob.objects import Document, Objects
from ematix_flow.run_log.protocol import ClaimResult, ExpiredClaim, lease_lost_error
from ematix_flow.run_log.records import from_text, in_utc, to_text
from ematix_flow.run_log.worker import is_dead


class BlobClaims:
    """The claims of a run log; an object store has no queryable clock, so each worker's own is used."""

    _objects: Objects

    def claim(self, pipeline: str, worker_id: str, lease_seconds: float) -> ClaimResult:
        """Claim the right to run a pipeline; it is free if unclaimed, expired, or held by a dead worker."""
        seen: Document = {}

        def claimed(held: Document | None) -> Document | None:
            moment = clock_now()
            seen.clear()
            seen.update(held or {})
            if held is not None and not _is_free(held, moment):
                return None
            fence = (held or {}).get("fence", 0) + 1
            return {
                "pipeline_name": pipeline,
                "claim_token": f"{fence}-{uuid.uuid4().hex}.{encode(pipeline)}",
                "worker_id": worker_id,
                "claimed_at": to_text(moment),
                "expires_at": to_text(moment + timedelta(seconds=lease_seconds)),
                "fence": fence,
            }

        got = self._objects.change(f"claims/{encode(pipeline)}.json", claimed)
        if got is None:
            return ClaimResult.busy(seen["worker_id"], from_text(seen["expires_at"]))
        return ClaimResult.acquired_by(got["claim_token"], worker_id, from_text(got["expires_at"]), got["fence"])

    def heartbeat(self, claim_token: str, lease_seconds: float) -> bool:
        """Renew a claim; return False, and change nothing, if the token no longer holds it."""

        def renewed(held: Document | None) -> Document | None:
            if held is None or held["claim_token"] != claim_token:
                return None
            return {**held, "expires_at": to_text(clock_now() + timedelta(seconds=lease_seconds))}

        return self._objects.change(_key_of(claim_token), renewed) is not None

    def release(self, claim_token: str) -> None:
        """Release a claim; a stale token changes nothing."""
        self._objects.change(
            _key_of(claim_token),
            lambda held: _released_claim(held) if held is not None and held["claim_token"] == claim_token else None,
        )

    def sweep_expired_leases(self, now: datetime) -> list[ExpiredClaim]:
        """Delete and return the claims that have expired or whose holder is dead."""
        swept: list[ExpiredClaim] = []
        for key in list(self._objects.keys("claims/")):
            before: Document = {}

            def freed(held: Document | None, before: Document = before) -> Document | None:
                if held is None or held["claim_token"] is None or not _is_free(held, in_utc(now)):
                    return None
                before.update(held)
                return _released_claim(held)

            if self._objects.change(key, freed) is not None:
                swept.append(
                    ExpiredClaim(before["pipeline_name"], before["worker_id"], from_text(before["expires_at"]))
                )
        return swept


def require_leadership(objects: Objects, leader: str | None) -> None:
    """Raise LeaseLost unless the leader's token is valid now."""
    if leader is None:
        return
    held = objects.read(_key_of(leader))
    if held is None or held["claim_token"] != leader or from_text(held["expires_at"]) <= clock_now():
        raise lease_lost_error(leader)


def _key_of(claim_token: str) -> str:
    """Return the key of a token's claim; the token contains the pipeline's name, any other text matches no claim."""
    return f"claims/{claim_token.partition('.')[2]}.json"


def _released_claim(held: Document) -> Document:
    """Return the claim without a holder; the fence stays, so that a later token always has the greater one."""
    return {**held, "claim_token": None}


def _is_free(held: Document, moment: datetime) -> bool:
    return held["claim_token"] is None or from_text(held["expires_at"]) <= moment or is_dead(held["worker_id"])
