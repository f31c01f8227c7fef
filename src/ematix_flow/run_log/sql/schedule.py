"""The schedule store in tables: fired slots, pauses and intervals."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from ematix_flow.foundation.clock import now as clock_now
from ematix_flow.run_log.records import from_text, to_text
from ematix_flow.run_log.schedule import CRON, Interval, Pause, Slot
from ematix_flow.run_log.sql.base import SqlStore, retry_on_conflict
from ematix_flow.run_log.sql.claims import require_leadership
from ematix_flow.run_log.sql.dialect import RunLogSession

_COLUMNS = ("pipeline", "start_at", "end_at", "status", "run_id", "attempt", "error", "worker_id", "expires_at")
_KEY = ("pipeline", "start_at", "end_at")
_INTERVAL = ", ".join(_COLUMNS)
_SLOT_COLUMNS = ("pipeline", "slot", "fired_at", "worker_id", "run_id")
_SLOT = ", ".join(_SLOT_COLUMNS)


class SqlSchedule(SqlStore):
    """The slots, pauses and intervals of a run log in a SQL database."""

    @retry_on_conflict
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
        document = fired.to_dict()
        with self._transaction() as sql:
            require_leadership(sql, leader)
            if not sql.add("fired_slots", {**document, "digest": fired.digest}):
                return False
            sql.put("last_slots", {**document, "kind": fired.kind}, key=["kind", "pipeline"])
        return True

    def slots(self, pipeline: str, *, limit: int = 50) -> list[Slot]:
        """Return the slots that a pipeline fired, the latest first."""
        with self._transaction(write=False) as sql:
            rows = sql.rows(
                f"SELECT {_SLOT} FROM $fired_slots WHERE pipeline = ? ORDER BY fired_at DESC, digest DESC LIMIT ?",
                pipeline,
                max(limit, 0),
            )
        return [_slot(row) for row in rows]

    def last_slots(self, kind: str = CRON) -> dict[str, Slot]:
        """Return the slot of this kind that each pipeline fired last."""
        with self._transaction(write=False) as sql:
            rows = sql.rows(f"SELECT {_SLOT} FROM $last_slots WHERE kind = ?", kind)
        return {row[0]: _slot(row) for row in rows}

    @retry_on_conflict
    def set_paused(self, name: str, paused: bool, by: str) -> None:
        """Pause or unpause a pipeline or workflow; a second pause does not replace the first."""
        with self._transaction() as sql:
            if paused:
                sql.add("pauses", {"name": name, "paused_at": to_text(clock_now()), "paused_by": by})
            else:
                sql.run("DELETE FROM $pauses WHERE name = ?", name)

    def paused(self) -> dict[str, Pause]:
        """Return every paused pipeline and workflow, by name."""
        with self._transaction(write=False) as sql:
            rows = sql.rows("SELECT name, paused_at, paused_by FROM $pauses")
        return {name: Pause(name, from_text(at), by) for name, at, by in rows}

    @retry_on_conflict
    def record_intervals(self, pipeline: str, intervals: Iterable[Interval]) -> None:
        """Write the states of intervals; planning never takes an interval away from its worker."""
        ordered = sorted(intervals, key=lambda interval: (interval.start, interval.end))
        planned = [_row(pipeline, Interval(interval.start, interval.end)) for interval in ordered]
        with self._transaction() as sql:
            sql.add_all("intervals", planned)
            known = {(interval.start, interval.end): interval for interval in _intervals(sql, pipeline, locked=True)}
            changed = [interval.after(known.get((interval.start, interval.end))) for interval in ordered]
            rows = [_row(pipeline, interval) for interval in changed if interval is not None]
            sql.put("intervals", *rows, key=_KEY)

    def intervals(self, pipeline: str) -> list[Interval]:
        """Return the intervals of a pipeline, the earliest first."""
        with self._transaction(write=False) as sql:
            return _intervals(sql, pipeline)

    @retry_on_conflict
    def take_interval(
        self, pipeline: str, start: datetime, end: datetime, worker_id: str, lease_seconds: float
    ) -> bool:
        """Claim one interval for loading; return False if it is done or held by another worker."""
        with self._transaction() as sql:
            sql.add("intervals", _row(pipeline, Interval(start, end)))
            known = _locked_interval(sql, pipeline, start, end)
            taken = known.claimed(worker_id, sql.now(), lease_seconds) if known else None
            return _write_interval(sql, pipeline, taken)

    @retry_on_conflict
    def renew_interval(
        self, pipeline: str, start: datetime, end: datetime, worker_id: str, lease_seconds: float
    ) -> bool:
        """Extend the lease of an interval; return False if this worker no longer holds it."""
        with self._transaction() as sql:
            known = _locked_interval(sql, pipeline, start, end)
            return _write_interval(sql, pipeline, known.renewed(worker_id, sql.now(), lease_seconds) if known else None)


def _slot(row: tuple[Any, ...]) -> Slot:
    return Slot.from_dict(dict(zip(_SLOT_COLUMNS, row, strict=True)))


def _intervals(sql: RunLogSession, pipeline: str, *, locked: bool = False) -> list[Interval]:
    lock = sql.dialect.row_lock if locked else ""
    rows = sql.rows(f"SELECT {_INTERVAL} FROM $intervals WHERE pipeline = ? ORDER BY start_at, end_at{lock}", pipeline)
    return [_interval(row) for row in rows]


def _locked_interval(sql: RunLogSession, pipeline: str, start: datetime, end: datetime) -> Interval | None:
    row = sql.one(
        f"SELECT {_INTERVAL} FROM $intervals WHERE pipeline = ? AND start_at = ? AND end_at = ?{sql.dialect.row_lock}",
        pipeline,
        to_text(start),
        to_text(end),
    )
    return _interval(row) if row else None


def _write_interval(sql: RunLogSession, pipeline: str, interval: Interval | None) -> bool:
    if interval is None:
        return False
    sql.put("intervals", _row(pipeline, interval), key=_KEY)
    return True


def _row(pipeline: str, interval: Interval) -> dict[str, Any]:
    expires = to_text(interval.expires_at) if interval.expires_at else None
    values = (pipeline, to_text(interval.start), to_text(interval.end), interval.status, interval.run_id,
              interval.attempt, interval.error, interval.worker_id, expires)  # fmt: skip
    return dict(zip(_COLUMNS, values, strict=True))


def _interval(row: tuple[Any, ...]) -> Interval:
    _, start, end, status, run_id, attempt, error, worker_id, expires = row
    return Interval(
        start=from_text(start),
        end=from_text(end),
        status=status,
        run_id=run_id,
        attempt=attempt,
        error=error,
        worker_id=worker_id,
        expires_at=from_text(expires) if expires else None,
    )
