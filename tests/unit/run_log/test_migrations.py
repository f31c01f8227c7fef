"""Run logs of older versions: their lines stay, and everything new works on them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from ematix_flow.foundation.errors import ConnectionFailed
from ematix_flow.run_log import Action, AttemptState, Interval, RunRecord, SqliteRunLog
from ematix_flow.run_log.sql.migrations import VERSIONS

BEGUN = datetime(2026, 1, 1, tzinfo=timezone.utc)
# What version 1 executed, letter by letter.
VERSION_1 = (
    """CREATE TABLE IF NOT EXISTS run_log (
            pipeline_name TEXT PRIMARY KEY, last_run_at TEXT NOT NULL, success INTEGER NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS attempt_state (
            pipeline_name TEXT PRIMARY KEY, attempt_count INTEGER NOT NULL, last_attempt_at TEXT NOT NULL,
            gave_up INTEGER NOT NULL DEFAULT 0)""",
    """CREATE TABLE IF NOT EXISTS pipeline_claims (
            pipeline_name TEXT PRIMARY KEY, claim_token TEXT NOT NULL UNIQUE, worker_id TEXT NOT NULL,
            claimed_at TEXT NOT NULL, expires_at TEXT NOT NULL)""",
    "CREATE TABLE IF NOT EXISTS claim_fences (pipeline_name TEXT PRIMARY KEY, fence INTEGER NOT NULL)",
    """CREATE TABLE IF NOT EXISTS run_records (
            run_id TEXT PRIMARY KEY, pipeline TEXT NOT NULL, status TEXT NOT NULL, started_at TEXT NOT NULL,
            finished_at TEXT, attempt INTEGER NOT NULL DEFAULT 1, failed_step TEXT, failed_watermark TEXT,
            error_summary TEXT, kind TEXT NOT NULL DEFAULT 'batch', extras_json TEXT NOT NULL DEFAULT '{}')""",
    "CREATE INDEX IF NOT EXISTS run_records_by_time ON run_records (started_at DESC)",
    "CREATE INDEX IF NOT EXISTS run_records_by_pipeline ON run_records (pipeline, started_at DESC)",
    "PRAGMA user_version = 1",
)
ROWS = (
    "INSERT INTO run_log VALUES ('orders', '2026-01-01T00:00:02.000000Z', 0)",
    "INSERT INTO attempt_state VALUES ('orders', 2, '2026-01-01T00:00:02.000000Z', 1)",
    "INSERT INTO claim_fences VALUES ('orders', 41)",
    """INSERT INTO pipeline_claims VALUES ('orders', '41-abc', 'elsewhere:1:1', '2026-01-01T00:00:00.000000Z',
            '2999-01-01T00:00:00.000000Z')""",
    """INSERT INTO run_records VALUES ('run-1', 'orders', 'failed', '2026-01-01T00:00:00.000000Z',
            '2026-01-01T00:00:02.000000Z', 2, 'publish', '2025-12-31', 'no room', 'batch', '{"rows": 3}')""",
)


def a_file_of_version_1(path: Path) -> Path:
    with closing(sqlite3.connect(path, isolation_level=None)) as sql:
        sql.execute("PRAGMA journal_mode = WAL")
        for statement in (*VERSION_1, *ROWS):
            sql.execute(statement)
    return path


def version_of(path: Path) -> int:
    with closing(sqlite3.connect(path)) as sql:
        (version,) = sql.execute("PRAGMA user_version").fetchone()
    return int(version)


def test_a_file_of_version_1_keeps_every_line(tmp_path: Path) -> None:
    path = a_file_of_version_1(tmp_path / "run_log.db")
    with closing(SqliteRunLog(path)) as log:
        assert log.get_run("run-1") == RunRecord(
            "run-1", "orders", "failed", BEGUN, BEGUN + timedelta(seconds=2), 2, "publish", "2025-12-31", "no room",
            extras={"rows": 3},
        )  # fmt: skip
        assert log.last_runs()["orders"].success is False
        assert log.attempt_states() == {"orders": AttemptState(2, BEGUN + timedelta(seconds=2), True)}
        assert log.claim("orders", "third:1:1", 60).holder == "elsewhere:1:1"
        log.release("41-abc")
        assert log.claim("orders", "third:1:1", 60).fence == 42
    assert version_of(path) == len(VERSIONS)


def test_everything_new_works_on_a_file_of_version_1(tmp_path: Path) -> None:
    with closing(SqliteRunLog(a_file_of_version_1(tmp_path / "run_log.db"))) as log:
        assert log.take_slot("orders", "cron:1", "a:1:1", leader="41-abc")
        assert set(log.last_slots()) == {"orders"}
        log.set_paused("orders", True, "ana")
        assert set(log.paused()) == {"orders"}
        assert log.take_interval("orders", BEGUN, BEGUN + timedelta(days=1), "a:1:1", 60)
        log.record_intervals("orders", [Interval(BEGUN, BEGUN + timedelta(days=1), "done")])
        action_id = log.enqueue(Action("restart", "orders", "run-1"))
        assert log.take_action(action_id, "a:1:1")
        assert log.latest_runs()["orders"].run_id == action_id


def test_a_migration_that_ends_in_the_middle_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = a_file_of_version_1(tmp_path / "run_log.db")
    with closing(sqlite3.connect(path)) as sql:
        sql.execute("CREATE TABLE fired_slots_by_time (word TEXT)")  # in the way of an index of version 2
    with pytest.raises(ConnectionFailed, match="already a table"):
        SqliteRunLog(path)
    assert version_of(path) == 1
    with closing(sqlite3.connect(path)) as sql:
        tables = {name for (name,) in sql.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert "fired_slots" not in tables
