"""Run records, last outcomes and attempts in tables."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from ematix_flow.run_log.protocol import only_match
from ematix_flow.run_log.records import AttemptState, Change, LastRun, RecordFate, RunRecord, from_text, to_text
from ematix_flow.run_log.requests import RunRequests
from ematix_flow.run_log.sql.base import SqlStore, retry_on_conflict
from ematix_flow.run_log.sql.claims import require_leadership
from ematix_flow.run_log.sql.dialect import RunLogSession

_LAST_CHARACTER = "\U0010ffff"
_COLUMNS = (
    "run_id", "pipeline", "status", "started_at", "finished_at", "attempt", "failed_step", "failed_watermark",
    "error_summary", "kind", "extras_json",
)  # fmt: skip
_RECORD = ", ".join(_COLUMNS)


class SqlHistory(SqlStore, RunRequests):
    """The run records and requests of a run log in a SQL database."""

    @retry_on_conflict
    def record_run(self, name: str, ts: datetime, success: bool) -> None:
        """Record the last outcome of a pipeline."""
        row = {"pipeline_name": name, "last_run_at": to_text(ts), "success": int(success)}
        with self._transaction() as sql:
            sql.put("run_log", row, key=["pipeline_name"])

    def last_runs(self) -> dict[str, LastRun]:
        """Return the last outcome of every pipeline."""
        with self._transaction(write=False) as sql:
            rows = sql.rows("SELECT pipeline_name, last_run_at, success FROM $run_log")
        return {name: LastRun(from_text(at), bool(success)) for name, at, success in rows}

    @retry_on_conflict
    def record_attempt(self, name: str, state: AttemptState) -> None:
        """Record the number of consecutive failures of a pipeline."""
        row = {
            "pipeline_name": name,
            "attempt_count": state.attempt_count,
            "last_attempt_at": to_text(state.last_attempt_at),
            "gave_up": int(state.gave_up),
        }
        with self._transaction() as sql:
            sql.put("attempt_state", row, key=["pipeline_name"])

    @retry_on_conflict
    def clear_attempt_state(self, name: str) -> None:
        """Delete the recorded failures of a pipeline."""
        with self._transaction() as sql:
            sql.run("DELETE FROM $attempt_state WHERE pipeline_name = ?", name)

    def attempt_states(self) -> dict[str, AttemptState]:
        """Return the consecutive failures of every pipeline that has any."""
        with self._transaction(write=False) as sql:
            rows = sql.rows("SELECT pipeline_name, attempt_count, last_attempt_at, gave_up FROM $attempt_state")
        return {name: AttemptState(count, from_text(at), bool(gave_up)) for name, count, at, gave_up in rows}

    @retry_on_conflict
    def record_run_record(self, record: RunRecord) -> None:
        """Insert or replace the record of a run."""
        with self._transaction() as sql:
            sql.put("run_records", _row(record), key=["run_id"])

    @retry_on_conflict
    def offer_run(self, record: RunRecord, *, leader: str | None = None) -> bool:
        """Insert a run unless its id is known; return True to one caller only. Raise LeaseLost for a stale leader."""
        with self._transaction() as sql:
            require_leadership(sql, leader)
            return sql.add("run_records", _row(record))

    def list_runs(
        self, *, pipeline: str | None = None, status: str | None = None, limit: int = 50, offset: int = 0
    ) -> tuple[list[RunRecord], int]:
        """Return a page of runs, the newest first, and the number of all matching runs."""
        wanted = {name: value for name, value in (("pipeline", pipeline), ("status", status)) if value is not None}
        where = f"WHERE {' AND '.join(f'{column} = ?' for column in wanted)}" if wanted else ""
        with self._transaction(write=False) as sql:
            counted = sql.one(f"SELECT count(*) FROM $run_records {where}", *wanted.values())
            rows = sql.rows(
                f"SELECT {_RECORD} FROM $run_records {where} ORDER BY started_at DESC, run_id DESC LIMIT ? OFFSET ?",
                *wanted.values(),
                max(limit, 0),
                max(offset, 0),
            )
        return [_record(row) for row in rows], int(counted[0]) if counted else 0

    def latest_runs(self) -> dict[str, RunRecord]:
        """Return the newest run of every pipeline, without runs that are only requested."""
        newest = (
            "SELECT (SELECT r.run_id FROM $run_records r WHERE r.pipeline = p.pipeline AND r.status <> 'requested' "
            "ORDER BY r.started_at DESC, r.run_id DESC LIMIT 1) AS run_id "
            "FROM (SELECT DISTINCT pipeline FROM $run_records) p"
        )
        columns = ", ".join(f"r.{column}" for column in _COLUMNS)
        with self._transaction(write=False) as sql:
            rows = sql.rows(f"SELECT {columns} FROM ({newest}) n JOIN $run_records r ON r.run_id = n.run_id")
        return {record.pipeline: record for record in map(_record, rows)}

    @retry_on_conflict
    def retire_runs(self, before: datetime) -> int:
        """Delete ended runs that began before a moment, except the newest of each pipeline; return how many."""
        newest = {record.run_id for record in self.latest_runs().values()}
        wanted = "SELECT run_id FROM $run_records WHERE finished_at IS NOT NULL AND started_at < ?"
        with self._transaction() as sql:
            gone = [run_id for (run_id,) in sql.rows(wanted, to_text(before)) if run_id not in newest]
            for run_id in gone:
                sql.run("DELETE FROM $run_records WHERE run_id = ?", run_id)
        return len(gone)

    def get_run(self, run_id: str) -> RunRecord | None:
        """Return the run with that id or unique id prefix; None if there is none."""
        with self._transaction(write=False) as sql:
            rows = sql.rows(f"SELECT {_RECORD} FROM $run_records WHERE run_id = ?", run_id) or sql.rows(
                f"SELECT {_RECORD} FROM $run_records WHERE run_id >= ? AND run_id < ? ORDER BY run_id LIMIT 6",
                run_id,
                run_id + _LAST_CHARACTER,
            )
        return only_match(run_id, [_record(row) for row in rows])

    @retry_on_conflict
    def change_run(self, run_id: str, change: Change, *, leader: str | None = None) -> bool:
        """Atomically replace or delete the record with exactly that id; return False if it stays unchanged."""
        with self._transaction() as sql:
            require_leadership(sql, leader)
            known = _locked(sql, run_id)
            result = change(known) if known is not None else RecordFate.KEPT
            if result is RecordFate.KEPT:
                return False
            if isinstance(result, RunRecord):
                sql.put("run_records", _row(result), key=["run_id"])
            else:
                sql.run("DELETE FROM $run_records WHERE run_id = ?", run_id)
        return True


def _locked(sql: RunLogSession, run_id: str) -> RunRecord | None:
    row = sql.one(f"SELECT {_RECORD} FROM $run_records WHERE run_id = ?{sql.dialect.row_lock}", run_id)
    return _record(row) if row else None


def _row(record: RunRecord) -> dict[str, Any]:
    values = (
        record.run_id,
        record.pipeline,
        record.status,
        to_text(record.started_at),
        to_text(record.finished_at) if record.finished_at else None,
        record.attempt,
        record.failed_step,
        record.failed_watermark,
        record.error_summary,
        record.kind,
        json.dumps(dict(record.extras), default=str, ensure_ascii=False),
    )
    return dict(zip(_COLUMNS, values, strict=True))


def _record(row: tuple[Any, ...]) -> RunRecord:
    values = dict(zip(_COLUMNS, row, strict=True))
    return RunRecord.from_dict({**values, "extras": json.loads(values["extras_json"] or "{}")})
