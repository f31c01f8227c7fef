"""A hundred thousand runs in the file that most people have."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from ematix_flow.run_log import SqliteRunLog
from ematix_flow.run_log.records import to_text

RUNS, PIPELINES = 100_000, 200
BEGUN = datetime(2026, 1, 1, tzinfo=timezone.utc)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqliteRunLog]:
    """A log with many runs of many pipelines, every tenth of them failed."""
    path: Path = tmp_path_factory.mktemp("many") / "run_log.db"
    with closing(SqliteRunLog(path)) as log:
        with closing(sqlite3.connect(path)) as sql, sql:
            sql.executemany(
                "INSERT INTO run_records VALUES (?, ?, ?, ?, ?, 1, NULL, NULL, NULL, 'batch', ?)",
                (
                    (
                        f"run-{number:06d}", f"job-{number % PIPELINES}", "failed" if number % 10 == 0 else "succeeded",
                        to_text(BEGUN + timedelta(seconds=number)), to_text(BEGUN + timedelta(seconds=number + 1)),
                        '{"targets": [{"table": "public.orders", "rows_inserted": 4}]}',
                    )
                    for number in range(RUNS)
                ),
            )  # fmt: skip
        yield log


def took(work: Callable[[], object]) -> float:
    """The best of three, in seconds of this process: others are at work on the same machine."""
    return min(_once(work) for _ in range(3))


def _once(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def test_the_newest_run_of_every_pipeline_is_found_within_a_second(many: SqliteRunLog) -> None:
    assert took(many.latest_runs) < 1
    newest = many.latest_runs()
    assert len(newest) == PIPELINES
    assert newest["job-0"].run_id == f"run-{RUNS - PIPELINES:06d}"


def test_listing_counting_and_finding_take_less_than_a_second(many: SqliteRunLog) -> None:
    assert took(lambda: many.list_runs(limit=20)) < 1
    assert took(lambda: many.list_runs(limit=20, offset=RUNS - 20)) < 1
    assert took(lambda: many.list_runs(pipeline="job-7", status="succeeded")) < 1
    assert took(lambda: many.list_runs(status="failed")) < 1
    records, total = many.list_runs(pipeline="job-10", status="failed", limit=1)
    assert (total, records[0].run_id) == (RUNS // PIPELINES, f"run-{RUNS - PIPELINES + 10:06d}")


def test_what_a_scheduler_asks_on_every_tick_takes_milliseconds(many: SqliteRunLog) -> None:
    for number in range(PIPELINES):
        many.take_slot(f"job-{number}", "cron:1", "a:1:1")

    def tick() -> None:
        many.last_slots()
        many.last_runs()
        many.attempt_states()
        many.paused()
        many.pending_actions()

    assert took(tick) < 0.1
