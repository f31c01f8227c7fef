"""The schedule store as objects: fired slots, pauses and intervals."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from itertools import islice

from ematix_flow.foundation.clock import now as clock_now
from ematix_flow.run_log.blob.claims import require_leadership
from ematix_flow.run_log.blob.keys import encode, newest_first_number
from ematix_flow.run_log.blob.objects import Document, Objects
from ematix_flow.run_log.records import from_text, in_utc, to_text
from ematix_flow.run_log.schedule import CRON, Interval, Pause, Slot
from ematix_flow.storage.object_store import in_parallel

_TAKING = "taking"


class BlobSchedule:
    """The slots, pauses and intervals of a run log in an object store."""

    _objects: Objects

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
        fired = Slot(pipeline, slot, fired_at or clock_now(), worker_id, run_id)
        require_leadership(self._objects, leader)
        if self._objects.change(_last_key(fired), lambda known: _about_to_take(known, fired)) is None:
            return False
        is_ours = self._objects.create(_slot_key(pipeline, fired.digest), fired.to_dict())
        taken = fired if is_ours else self._taken(pipeline, fired.digest)
        if taken is not None:  # a loser completes the records of a winner that died here
            self._objects.write(_history_key(taken), taken.to_dict())
            self._objects.change(_last_key(taken), lambda known: _has_taken(known, taken))
        return is_ours

    def slots(self, pipeline: str, *, limit: int = 50) -> list[Slot]:
        """Return the slots that a pipeline fired, the latest first."""
        most = max(limit, 0)
        keys = self._objects.keys(f"fired/{encode(pipeline)}/", page=min(most, 999) + 1)
        return [Slot.from_dict(document) for document in self._objects.read_all(islice(keys, most))]

    def last_slots(self, kind: str = CRON) -> dict[str, Slot]:
        """Return the slot of this kind that each pipeline fired last."""
        documents = self._objects.read_all(self._objects.keys(f"last_slots/{encode(kind)}/"))
        last = in_parallel(self._last, documents)
        return {slot.pipeline: slot for slot in last if slot is not None}

    def _last(self, document: Document) -> Slot | None:
        """Return the last slot of a pipeline, also if the process that took it died before it recorded that."""
        known = _slot(document)
        taken = self._taken(document["pipeline"], document[_TAKING]) if document.get(_TAKING) else None
        if known is None or taken is None:
            return known or taken
        return max(known, taken, key=lambda slot: slot.fired_at)

    def _taken(self, pipeline: str, digest: str) -> Slot | None:
        document = self._objects.read(_slot_key(pipeline, digest))
        return Slot.from_dict(document) if document is not None else None

    def set_paused(self, name: str, paused: bool, by: str) -> None:
        """Pause or unpause a pipeline or workflow; a second pause does not replace the first."""
        key = f"pauses/{encode(name)}.json"
        if paused:
            self._objects.create(key, {"name": name, "paused_at": to_text(clock_now()), "paused_by": by})
        else:
            self._objects.delete(key)

    def paused(self) -> dict[str, Pause]:
        """Return every paused pipeline and workflow, by name."""
        documents = self._objects.read_all(self._objects.keys("pauses/"))
        return {
            document["name"]: Pause(document["name"], from_text(document["paused_at"]), document["paused_by"])
            for document in documents
        }

    def record_intervals(self, pipeline: str, intervals: Iterable[Interval]) -> None:
        """Write the states of intervals; planning never takes an interval away from its worker."""
        in_parallel(lambda interval: self._change(pipeline, interval.start, interval.end, interval.after), intervals)

    def intervals(self, pipeline: str) -> list[Interval]:
        """Return the intervals of a pipeline, the earliest first."""
        return [
            _interval_from_dict(document)
            for document in self._objects.read_all(self._objects.keys(f"intervals/{encode(pipeline)}/"))
        ]

    def take_interval(
        self, pipeline: str, start: datetime, end: datetime, worker_id: str, lease_seconds: float
    ) -> bool:
        """Claim one interval for loading; return False if it is done or held by another worker."""

        def taken(known: Interval | None) -> Interval | None:
            return (known or Interval(start, end)).claimed(worker_id, clock_now(), lease_seconds)

        return self._change(pipeline, start, end, taken)

    def renew_interval(
        self, pipeline: str, start: datetime, end: datetime, worker_id: str, lease_seconds: float
    ) -> bool:
        """Extend the lease of an interval; return False if this worker no longer holds it."""

        def renewed(known: Interval | None) -> Interval | None:
            return known.renewed(worker_id, clock_now(), lease_seconds) if known is not None else None

        return self._change(pipeline, start, end, renewed)

    def _change(
        self, pipeline: str, start: datetime, end: datetime, change: Callable[[Interval | None], Interval | None]
    ) -> bool:
        def changed(data: Document | None) -> Document | None:
            after = change(_interval_from_dict(data) if data is not None else None)
            return _interval_to_dict(after) if after is not None else None

        key = f"intervals/{encode(pipeline)}/{_time_key(start)}.{_time_key(end)}.json"
        return self._objects.change(key, changed) is not None


def _about_to_take(known: Document | None, fired: Slot) -> Document | None:
    """Return the record with the slot to be taken, so that it is found after a crash; None if it was taken last."""
    if known is None:
        return {"pipeline": fired.pipeline, _TAKING: fired.digest}
    return {**known, _TAKING: fired.digest} if known.get("slot") != fired.slot else None


def _has_taken(known: Document | None, taken: Slot) -> Document | None:
    """Return the record after this slot was taken; another process may be about to take another one."""
    known = known or {}
    before, taking = _slot(known), known.get(_TAKING)
    if before is None or before.fired_at < taken.fired_at:
        return {**taken.to_dict(), _TAKING: taking if taking != taken.digest else None}
    return {**known, _TAKING: None} if taking == taken.digest else None


def _slot(document: Document) -> Slot | None:
    """Return the recorded slot; None if no slot of this kind is known to have been taken."""
    return Slot.from_dict(document) if "slot" in document else None


def _last_key(slot: Slot) -> str:
    return f"last_slots/{encode(slot.kind)}/{encode(slot.pipeline)}.json"


def _slot_key(pipeline: str, digest: str) -> str:
    return f"slots/{encode(pipeline)}/{digest}.json"


def _history_key(slot: Slot) -> str:
    return f"fired/{encode(slot.pipeline)}/{newest_first_number(slot.fired_at)}.{slot.digest[:16]}.json"


def _time_key(moment: datetime) -> str:
    return in_utc(moment).strftime("%Y%m%dT%H%M%S-%f")


def _interval_to_dict(interval: Interval) -> Document:
    return {
        "start": to_text(interval.start),
        "end": to_text(interval.end),
        "status": interval.status,
        "run_id": interval.run_id,
        "attempt": interval.attempt,
        "error": interval.error,
        "worker_id": interval.worker_id,
        "expires_at": to_text(interval.expires_at) if interval.expires_at else None,
    }


def _interval_from_dict(document: Document) -> Interval:
    return Interval(
        start=from_text(document["start"]),
        end=from_text(document["end"]),
        status=document["status"],
        run_id=document["run_id"],
        attempt=document["attempt"],
        error=document["error"],
        worker_id=document["worker_id"],
        expires_at=from_text(document["expires_at"]) if document["expires_at"] else None,
    )
