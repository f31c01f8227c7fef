"""The run log in one SQLite file, shared by as many processes as like to."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from ematix_flow.foundation.clock import now as clock_now
from ematix_flow.runlog import sqlite_schema
from ematix_flow.runlog.protocol import ClaimResult, ExpiredClaim, the_only_one
from ematix_flow.runlog.records import AttemptState, LastRun, RunRecord, from_text, in_utc, to_text
from ematix_flow.runlog.sqlite_errors import translate
from ematix_flow.runlog.worker import is_dead

BUSY_SECONDS = 30.0
_LAST_CHARACTER = "\U0010ffff"
_RECORD = (
    "run_id, pipeline, status, started_at, finished_at, attempt, failed_step, failed_watermark, error_summary, kind, "
    "extras_json"
)


class SqliteRunLog:
    """A run log in the file at `path`, made when it is not there.

    >>> import tempfile
    >>> log = SqliteRunLog(Path(tempfile.mkdtemp()) / "run_log.db")
    >>> log.claim("load_orders", "host:1:0", 60).acquired
    True
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._lock = threading.RLock()
        self._open: tuple[int, sqlite3.Connection] | None = None
        with self._transaction("BEGIN"):
            pass

    @property
    def path(self) -> Path:
        """The file."""
        return self._path

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._open is not None and self._open[0] == os.getpid():
                self._open[1].close()
            self._open = None

    def record_run(self, name: str, ts: datetime, success: bool) -> None:
        """Remember the last outcome of a pipeline."""
        with self._transaction() as sql:
            sql.execute(
                "INSERT OR REPLACE INTO run_log (pipeline_name, last_run_at, success) VALUES (?, ?, ?)",
                (name, to_text(ts), int(success)),
            )

    def last_runs(self) -> dict[str, LastRun]:
        """The last outcome of every pipeline."""
        with self._transaction("BEGIN") as sql:
            rows = sql.execute("SELECT pipeline_name, last_run_at, success FROM run_log").fetchall()
        return {name: LastRun(from_text(at), bool(success)) for name, at, success in rows}

    def record_attempt(self, name: str, state: AttemptState) -> None:
        """Remember how often a pipeline has failed in a row."""
        with self._transaction() as sql:
            sql.execute(
                "INSERT OR REPLACE INTO attempt_state (pipeline_name, attempt_count, last_attempt_at, gave_up) "
                "VALUES (?, ?, ?, ?)",
                (name, state.attempt_count, to_text(state.last_attempt_at), int(state.gave_up)),
            )

    def clear_attempt_state(self, name: str) -> None:
        """Forget its failures."""
        with self._transaction() as sql:
            sql.execute("DELETE FROM attempt_state WHERE pipeline_name = ?", (name,))

    def attempt_states(self) -> dict[str, AttemptState]:
        """The failures in a row of every pipeline that has any."""
        with self._transaction("BEGIN") as sql:
            query = "SELECT pipeline_name, attempt_count, last_attempt_at, gave_up FROM attempt_state"
            rows = sql.execute(query).fetchall()
        return {name: AttemptState(count, from_text(at), bool(gave_up)) for name, count, at, gave_up in rows}

    def claim(self, pipeline: str, worker_id: str, lease_seconds: float) -> ClaimResult:
        """Ask for the right to run a pipeline; free when nobody has it, its lease is over or its holder is dead."""
        with self._transaction() as sql:
            moment = clock_now()  # taken inside the transaction: waiting for it must not shorten the lease
            held = sql.execute(
                "SELECT worker_id, expires_at FROM pipeline_claims WHERE pipeline_name = ?", (pipeline,)
            ).fetchone()
            if held is not None and not _is_free(held[0], from_text(held[1]), moment):
                return ClaimResult.busy(held[0], from_text(held[1]))
            fence = _next_fence(sql, pipeline)
            token = f"{fence}-{uuid.uuid4().hex}"
            expires = moment + timedelta(seconds=lease_seconds)
            sql.execute(
                "INSERT OR REPLACE INTO pipeline_claims "
                "(pipeline_name, claim_token, worker_id, claimed_at, expires_at) VALUES (?, ?, ?, ?, ?)",
                (pipeline, token, worker_id, to_text(moment), to_text(expires)),
            )
        return ClaimResult.acquired_by(token, worker_id, expires, fence)

    def heartbeat(self, claim_token: str, lease_seconds: float) -> bool:
        """Renew a claim; False, and nothing changed, when the token no longer holds it."""
        with self._transaction() as sql:
            expires = clock_now() + timedelta(seconds=lease_seconds)
            changed = sql.execute(
                "UPDATE pipeline_claims SET expires_at = ? WHERE claim_token = ?", (to_text(expires), claim_token)
            )
            return changed.rowcount == 1

    def release(self, claim_token: str) -> None:
        """Give a claim back; a stale token changes nothing."""
        with self._transaction() as sql:
            sql.execute("DELETE FROM pipeline_claims WHERE claim_token = ?", (claim_token,))

    def sweep_expired_leases(self, now: datetime) -> list[ExpiredClaim]:
        """Remove and return the claims that nobody holds any more."""
        with self._transaction() as sql:
            query = "SELECT pipeline_name, claim_token, worker_id, expires_at FROM pipeline_claims"
            rows = sql.execute(query).fetchall()
            gone = [row for row in rows if _is_free(row[2], from_text(row[3]), in_utc(now))]
            sql.executemany("DELETE FROM pipeline_claims WHERE claim_token = ?", [(row[1],) for row in gone])
        return [ExpiredClaim(row[0], row[2], from_text(row[3])) for row in gone]

    def record_run_record(self, record: RunRecord) -> None:
        """Remember a run, or replace what was known of it."""
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
        with self._transaction() as sql:
            marks = ", ".join("?" * len(values))
            sql.execute(f"INSERT OR REPLACE INTO run_records ({_RECORD}) VALUES ({marks})", values)

    def list_runs(
        self, *, pipeline: str | None = None, status: str | None = None, limit: int = 50, offset: int = 0
    ) -> tuple[list[RunRecord], int]:
        """Runs, the newest first, and how many there are in all."""
        wanted = {"pipeline": pipeline, "status": status}
        tests = [f"{column} = :{column}" for column, value in wanted.items() if value is not None]
        where = f"WHERE {' AND '.join(tests)}" if tests else ""
        asked = {**wanted, "limit": max(limit, 0), "offset": max(offset, 0)}
        with self._transaction("BEGIN") as sql:
            (total,) = sql.execute(f"SELECT count(*) FROM run_records {where}", asked).fetchone()
            rows = sql.execute(
                f"SELECT {_RECORD} FROM run_records {where} ORDER BY started_at DESC, run_id DESC "
                "LIMIT :limit OFFSET :offset",
                asked,
            ).fetchall()
        return [_record(row) for row in rows], int(total)

    def get_run(self, run_id: str) -> RunRecord | None:
        """The run of that id, or of the one id that begins so."""
        with self._transaction("BEGIN") as sql:
            exact = sql.execute(f"SELECT {_RECORD} FROM run_records WHERE run_id = ?", (run_id,)).fetchall()
            found = (
                exact
                or sql.execute(
                    f"SELECT {_RECORD} FROM run_records WHERE run_id >= ? AND run_id < ? ORDER BY run_id LIMIT 6",
                    (run_id, run_id + _LAST_CHARACTER),
                ).fetchall()
            )
        return the_only_one(run_id, [_record(row) for row in found])

    @contextmanager
    def _transaction(self, begin: str = "BEGIN IMMEDIATE") -> Iterator[sqlite3.Connection]:
        """One transaction; a writer takes the lock at once, because a reader that wants to write later may not wait."""
        with self._lock:
            try:
                sql = self._connection()
                sql.execute(begin)
                try:
                    yield sql
                    sql.execute("COMMIT")
                except BaseException:
                    if sql.in_transaction:
                        sql.execute("ROLLBACK")
                    raise
            except (sqlite3.Error, OSError) as error:
                raise translate(error, self._path) from error

    def _connection(self) -> sqlite3.Connection:
        """The open file; opened anew in a forked child, which must not use its parent's."""
        if self._open is None or self._open[0] != os.getpid():
            self._open = (os.getpid(), _connect(self._path))
        return self._open[1]


def _connect(path: Path) -> sqlite3.Connection:
    """An open, current file; SQLite does not wait by itself while another process switches a new file to WAL."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    until = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            return _connect_once(path)
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(0.02)


def _connect_once(path: Path) -> sqlite3.Connection:
    # Threads share the connection under the lock of its SqliteRunLog.
    sql = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        sqlite_schema.prepare(sql)
    except BaseException:
        sql.close()
        raise
    return sql


def _is_free(worker_id: str, expires_at: datetime, moment: datetime) -> bool:
    return expires_at <= moment or is_dead(worker_id)


def _next_fence(sql: sqlite3.Connection, pipeline: str) -> int:
    sql.execute("INSERT OR IGNORE INTO claim_fences (pipeline_name, fence) VALUES (?, 0)", (pipeline,))
    sql.execute("UPDATE claim_fences SET fence = fence + 1 WHERE pipeline_name = ?", (pipeline,))
    (fence,) = sql.execute("SELECT fence FROM claim_fences WHERE pipeline_name = ?", (pipeline,)).fetchone()
    return int(fence)


def _record(row: tuple[Any, ...]) -> RunRecord:
    run_id, pipeline, status, started, finished, attempt, step, watermark, summary, kind, extras = row
    return RunRecord(
        run_id=run_id,
        pipeline=pipeline,
        status=status,
        started_at=from_text(started),
        finished_at=from_text(finished) if finished else None,
        attempt=attempt,
        failed_step=step,
        failed_watermark=watermark,
        error_summary=summary,
        kind=kind,
        extras=json.loads(extras) if extras else {},
    )
