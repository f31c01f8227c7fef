"""Claims as objects: one a pipeline, replaced only by whoever saw its last state."""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta

from ematix_flow.foundation.clock import now as clock_now
from ematix_flow.runlog.blob.keys import encode
from ematix_flow.runlog.blob.objects import Document, Objects
from ematix_flow.runlog.protocol import ClaimResult, ExpiredClaim, lease_lost
from ematix_flow.runlog.records import from_text, in_utc, to_text
from ematix_flow.runlog.worker import is_dead


class BlobClaims:
    """Who may run what, and until when; an object store has no clock to ask, so each worker's own is used."""

    _objects: Objects

    def claim(self, pipeline: str, worker_id: str, lease_seconds: float) -> ClaimResult:
        """Ask for the right to run a pipeline; free when nobody has it, its lease is over or its holder is dead."""
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
        """Renew a claim; False, and nothing changed, when the token no longer holds it."""

        def renewed(held: Document | None) -> Document | None:
            if held is None or held["claim_token"] != claim_token:
                return None
            return {**held, "expires_at": to_text(clock_now() + timedelta(seconds=lease_seconds))}

        return self._objects.change(_key_of(claim_token), renewed) is not None

    def release(self, claim_token: str) -> None:
        """Give a claim back; a stale token changes nothing."""
        self._objects.change(
            _key_of(claim_token),
            lambda held: _given_back(held) if held is not None and held["claim_token"] == claim_token else None,
        )

    def sweep_expired_leases(self, now: datetime) -> list[ExpiredClaim]:
        """Remove and return the claims that nobody holds any more."""
        swept: list[ExpiredClaim] = []
        for key in list(self._objects.keys("claims/")):
            before: Document = {}

            def freed(held: Document | None, before: Document = before) -> Document | None:
                if held is None or held["claim_token"] is None or not _is_free(held, in_utc(now)):
                    return None
                before.update(held)
                return _given_back(held)

            if self._objects.change(key, freed) is not None:
                swept.append(
                    ExpiredClaim(before["pipeline_name"], before["worker_id"], from_text(before["expires_at"]))
                )
        return swept


def still_leads(objects: Objects, leader: str | None) -> None:
    """Refuse unless the leader's token holds now."""
    if leader is None:
        return
    held = objects.read(_key_of(leader))
    if held is None or held["claim_token"] != leader or from_text(held["expires_at"]) <= clock_now():
        raise lease_lost(leader)


def _key_of(claim_token: str) -> str:
    """A token carries the name of its pipeline; one of another kind leads nowhere."""
    return f"claims/{claim_token.partition('.')[2]}.json"


def _given_back(held: Document) -> Document:
    """Without a holder; the number stays, so that a later token is always the greater one."""
    return {**held, "claim_token": None}


def _is_free(held: Document, moment: datetime) -> bool:
    return held["claim_token"] is None or from_text(held["expires_at"]) <= moment or is_dead(held["worker_id"])
