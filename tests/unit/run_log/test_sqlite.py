"""The SQLite run log as a file: many processes, older and newer files, and files that cannot be used."""

from __future__ import annotations

import multiprocessing
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import datetime, timezone
from pathlib import Path

import pytest

from ematix_flow.foundation.errors import ConnectionFailed, FlowError
from ematix_flow.run_log import RunRecord, SqliteRunLog
from ematix_flow.run_log.sql.migrations import VERSIONS

BEGUN = datetime(2026, 1, 1, tzinfo=timezone.utc)
WORKER = """
import sys, time
from datetime import datetime, timezone
from ematix_flow.run_log import RunRecord, SqliteRunLog

path, number, until = sys.argv[1], sys.argv[2], float(sys.argv[3])
time.sleep(max(0, until - time.time()))
log = SqliteRunLog(path)
for count in range(20):
    log.record_run_record(RunRecord(f"{number}-{count}", "orders", "running", datetime.now(timezone.utc)))
    claim = log.claim("orders", f"elsewhere:{number}:1", 60)
    if claim.acquired:
        print(claim.fence)
        log.release(claim.token)
log.close()
"""


def test_processes_that_make_and_fill_one_file_at_once_lose_nothing(tmp_path: Path) -> None:
    import time

    path, start = tmp_path / "new" / "run_log.db", time.time() + 1.5
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(path), str(number), str(start)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for number in range(5)
    ]
    answers = [worker.communicate(timeout=120) for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * 5, [said for _, said in answers]
    fences = sorted(int(line) for out, _ in answers for line in out.split())
    with closing(SqliteRunLog(path)) as log:
        assert log.list_runs(limit=1)[1] == 100
    assert fences == list(range(1, len(fences) + 1))


def test_the_file_is_in_wal_mode_and_has_a_numbered_version(tmp_path: Path) -> None:
    SqliteRunLog(tmp_path / "run_log.db").close()
    with closing(sqlite3.connect(tmp_path / "run_log.db")) as sql:
        assert sql.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert sql.execute("PRAGMA user_version").fetchone() == (len(VERSIONS),)
        tables = {name for (name,) in sql.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert {"run_log", "attempt_state", "pipeline_claims", "run_records"} <= tables


def test_a_file_without_a_version_keeps_its_rows_and_its_times_without_fractions_are_read(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    with closing(sqlite3.connect(path)) as sql, sql:
        sql.execute("CREATE TABLE run_log (pipeline_name TEXT PRIMARY KEY, last_run_at TEXT, success INTEGER)")
        sql.execute("INSERT INTO run_log VALUES ('orders', '2026-01-01T00:00:00Z', 1)")
    with closing(SqliteRunLog(path)) as log:
        assert log.last_runs()["orders"].at == BEGUN
        assert log.claim("orders", "elsewhere:1:1", 60).acquired


def test_a_file_of_a_later_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "later.db"
    with closing(sqlite3.connect(path)) as sql, sql:
        sql.execute("PRAGMA user_version = 99")
    with pytest.raises(ConnectionFailed, match="version 99"):
        SqliteRunLog(path)
    with closing(sqlite3.connect(path)) as sql:
        assert sql.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)


@pytest.mark.parametrize("place", ["a_file/run_log.db", "a_folder", "text.db"])
def test_a_place_that_cannot_be_a_run_log_is_one_sentence_with_a_next_step(tmp_path: Path, place: str) -> None:
    (tmp_path / "a_file").write_text("")
    (tmp_path / "a_folder").mkdir()
    (tmp_path / "text.db").write_text("this is no database, and long enough to show it" * 10)
    with pytest.raises(FlowError, match="run log") as caught:
        SqliteRunLog(tmp_path / place)
    assert caught.value.exit_code == 5
    assert "--no-run-log" in (caught.value.hint or "")


def test_a_file_that_goes_bad_later_is_a_sentence_too(tmp_path: Path) -> None:
    path = tmp_path / "run_log.db"
    log = SqliteRunLog(path)
    log.close()
    for file in tmp_path.iterdir():
        file.write_bytes(b"scribble" * 1000)
    with pytest.raises(FlowError, match="run log"):
        log.list_runs()


def test_the_folder_of_a_new_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    SqliteRunLog(tmp_path / "home" / ".ematix-flow" / "run_log.db").close()
    assert (tmp_path / "home" / ".ematix-flow").stat().st_mode & 0o077 == 0


def _write_as_child(log: SqliteRunLog) -> None:
    log.record_run_record(RunRecord("child", "orders", "running", BEGUN))
    os._exit(0)


def test_a_forked_child_writes_through_a_connection_of_its_own(tmp_path: Path) -> None:
    with closing(SqliteRunLog(tmp_path / "run_log.db")) as log:
        log.record_run_record(RunRecord("parent", "orders", "running", BEGUN))
        child = multiprocessing.get_context("fork").Process(target=_write_as_child, args=(log,))
        child.start()
        child.join(timeout=30)
        log.record_run_record(RunRecord("parent again", "orders", "running", BEGUN))
        assert {record.run_id for record in log.list_runs()[0]} == {"parent", "child", "parent again"}


def test_a_closed_log_opens_again_when_it_is_used(tmp_path: Path) -> None:
    log = SqliteRunLog(tmp_path / "run_log.db")
    log.record_run("orders", BEGUN, True)
    log.close()
    assert log.last_runs()["orders"].success
    log.close()
