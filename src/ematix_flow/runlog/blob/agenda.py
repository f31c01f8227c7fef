"""The schedule store as objects: fired slots, pauses and intervals."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from itertools import islice

from ematix_flow.foundation.clock import now as clock_now
from ematix_flow.runlog.agenda import CRON, Interval, Pause, Slot
from ematix_flow.runlog.blob.claims import still_leads
from ematix_flow.runlog.blob.keys import backwards, encode
from ematix_flow.runlog.blob.objects import Document, Objects
from ematix_flow.runlog.records import from_text, in_utc, to_text


class BlobAgenda:
    """The slots, pauses and intervals of a run log in an object store."""

    _objects: Objects

    def take_slot(
        self, pipeline: str, slot: str, worker_id: str, *, leader: str | None = None, run_id: str = ""
    ) -> bool:
        """Take the right to fire one slot, which is granted once; raise LeaseLost if the leader's token has expired."""
        fired = Slot(pipeline, slot, clock_now(), worker_id, run_id)
        told = fired.to_dict()
        still_leads(self._objects, leader)
        if not self._objects.create(f"slots/{encode(pipeline)}/{fired.digest}.json", told):
            return False
        self._objects.write(f"fired/{encode(pipeline)}/{backwards(fired.fired_at)}.{fired.digest[:16]}.json", told)
        self._objects.change(
            f"last_slots/{encode(fired.kind)}/{encode(pipeline)}.json",
            lambda known: told if known is None or known["fired_at"] < told["fired_at"] else None,
        )
        return True

    def slots(self, pipeline: str, *, limit: int = 50) -> list[Slot]:
        """Return the slots that a pipeline fired, the latest first."""
        most = max(limit, 0)
        keys = self._objects.keys(f"fired/{encode(pipeline)}/", page=min(most, 999) + 1)
        return [Slot.from_dict(told) for told in self._objects.read_all(islice(keys, most))]

    def last_slots(self, kind: str = CRON) -> dict[str, Slot]:
        """Return the slot of this kind that each pipeline fired last."""
        found = self._objects.read_all(self._objects.keys(f"last_slots/{encode(kind)}/"))
        return {told["pipeline"]: Slot.from_dict(told) for told in found}

    def set_paused(self, name: str, paused: bool, by: str) -> None:
        """Pause or unpause a pipeline or workflow; a second pause does not replace the first."""
        key = f"pauses/{encode(name)}.json"
        if paused:
            self._objects.create(key, {"name": name, "paused_at": to_text(clock_now()), "paused_by": by})
        else:
            self._objects.delete(key)

    def paused(self) -> dict[str, Pause]:
        """Return every paused pipeline and workflow, by name."""
        found = self._objects.read_all(self._objects.keys("pauses/"))
        return {told["name"]: Pause(told["name"], from_text(told["paused_at"]), told["paused_by"]) for told in found}

    def record_intervals(self, pipeline: str, intervals: Iterable[Interval]) -> None:
        """Write the states of intervals; planning never takes an interval away from its worker."""
        self._objects.at_once(
            lambda interval: self._change(pipeline, interval.start, interval.end, interval.after), intervals
        )

    def intervals(self, pipeline: str) -> list[Interval]:
        """Return the intervals of a pipeline, the earliest first."""
        return [
            _interval(told) for told in self._objects.read_all(self._objects.keys(f"intervals/{encode(pipeline)}/"))
        ]

    def take_interval(
        self, pipeline: str, start: datetime, end: datetime, worker_id: str, lease_seconds: float
    ) -> bool:
        """Claim one interval for loading; return False if it is done or held by another worker."""

        def taken(known: Interval | None) -> Interval | None:
            return (known or Interval(start, end)).taken(worker_id, clock_now(), lease_seconds)

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
        def changed(told: Document | None) -> Document | None:
            after = change(_interval(told) if told is not None else None)
            return _told(after) if after is not None else None

        key = f"intervals/{encode(pipeline)}/{_stamp(start)}.{_stamp(end)}.json"
        return self._objects.change(key, changed) is not None


def _stamp(moment: datetime) -> str:
    return in_utc(moment).strftime("%Y%m%dT%H%M%S-%f")


def _told(interval: Interval) -> Document:
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


def _interval(told: Document) -> Interval:
    return Interval(
        start=from_text(told["start"]),
        end=from_text(told["end"]),
        status=told["status"],
        run_id=told["run_id"],
        attempt=told["attempt"],
        error=told["error"],
        worker_id=told["worker_id"],
        expires_at=from_text(told["expires_at"]) if told["expires_at"] else None,
    )
