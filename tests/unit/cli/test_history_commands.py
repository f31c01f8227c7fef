"""`flow status` and `flow runs`, and which run log they read."""

from __future__ import annotations

from contextlib import closing
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from ematix_flow.run_log import AttemptState, RunRecord, SqliteRunLog
from ematix_flow.run_log.worker import this_worker

BEGUN = datetime(2026, 1, 31, 12, 0, tzinfo=timezone.utc)


def default_log(project: Path) -> Path:
    return project.parent / "home" / ".ematix-flow" / "run_log.db"


def record(run_id: str, *, status: str = "succeeded", minute: int = 0, **more: Any) -> RunRecord:
    started = BEGUN + timedelta(minutes=minute)
    return RunRecord(run_id, "people", status, started, None if status == "running" else started, **more)


def test_status_before_the_first_run_says_never_and_makes_no_file(flow: Any, shop: Path) -> None:
    answer = flow("status")
    header, names, people = answer.out.splitlines()
    told = "NAME SCHEDULE NEXT DUE LAST RUN OUTCOME RETRY LAG FRESHNESS DEPENDS ON"
    assert header.split() == told.split()
    assert names.split() == ["names", "(unscheduled)", "-", "never", "-", "no", "retry", "-", "-", "people"]
    assert people.startswith("people  */5 * * * *")
    assert not default_log(shop).exists()


def test_status_tells_outcomes_and_attempts(flow: Any, shop: Path) -> None:
    with closing(SqliteRunLog(default_log(shop))) as log:
        log.record_run("people", BEGUN, False)
        log.record_attempt("people", AttemptState(1, BEGUN))
        log.record_run("names", BEGUN, True)
    answer = flow("status")
    _, names, people = answer.out.splitlines()
    assert " ok " in names
    assert " fail " in people
    assert " 1/3 next>" in people
    assert flow("status", "--json").document[1]["next_retry_at"] == "2026-01-31T12:01:00.000000Z"
    with closing(SqliteRunLog(default_log(shop))) as log:
        log.record_attempt("people", AttemptState(3, BEGUN, gave_up=True))
    assert "3/3 gave up" in flow("status").out


def test_a_schedule_that_cannot_be_read_is_reported_as_such(flow: Any, shop: Path, declare: Any) -> None:
    declare('\n@ematix.pipeline(target=People, target_connection="shop", mode="append", schedule="every day")\n'
            'def odd(conn):\n    return "SELECT 1"\n')  # fmt: skip
    assert "unreadable" in flow("status").out


def test_status_goes_on_without_a_run_log_that_cannot_be_read(flow: Any, shop: Path) -> None:
    answer = flow("status", "--run-log-path", "pipelines.py")
    assert answer.code == 0
    assert "warning: pipelines.py is not a run log" in answer.err
    assert "continuing without history" in answer.err
    assert "never" in answer.out


def test_runs_list_shows_the_newest_first_with_counts_and_errors(flow: Any, project: Path) -> None:
    with closing(SqliteRunLog(default_log(project))) as log:
        log.record_run_record(record("aaaaaaaa-1", extras={"targets": [{"rows_read": 4000, "rows_inserted": 3500}]}))
        log.record_run_record(record("bbbbbbbb-2", minute=1, status="failed", error_summary="no such column\nmore"))
    header, newest, oldest = flow("runs", "list").out.splitlines()
    assert header.split() == ["RUN", "PIPELINE", "STATUS", "STARTED", "TOOK", "ROWS"]
    assert newest.startswith("bbbbbbbb  people    failed")
    assert newest.endswith("no such column")
    assert oldest.endswith("4,000 read, 3,500 inserted")


def test_runs_list_takes_pipeline_status_limit_and_offset(flow: Any, project: Path) -> None:
    with closing(SqliteRunLog(default_log(project))) as log:
        for number in range(5):
            log.record_run_record(record(f"run-{number}", minute=number))
    answer = flow("runs", "list", "--pipeline", "people", "--status", "succeeded", "-n", "2", "--offset", "1")
    assert [line.split()[0] for line in answer.out.splitlines()[1:]] == ["run-3", "run-2"]
    assert "2 of 5 runs" in answer.err
    assert flow("runs", "list", "--pipeline", "nobody").out == ""
    assert flow("runs", "list", "--status", "sideways").code == 2
    assert flow("runs").out == flow("runs", "list").out


def test_runs_show_tells_everything_and_the_first_letters_are_enough(flow: Any, project: Path) -> None:
    error = {"where": "pipelines.py:41", "hint": "did you mean 'amount'?"}
    with closing(SqliteRunLog(default_log(project))) as log:
        log.record_run_record(
            record(
                "abcdef", status="failed", failed_step="read", error_summary="no column amuont", extras={"error": error}
            )
        )
        log.record_run_record(record("abxxxx", extras={"targets": [
            {"table": "analytics.orders", "connection": "wh", "mode": "append", "rows_inserted": 12, "watermark": "2026-01-31"}
        ]}))  # fmt: skip
    failed = flow("runs", "show", "abc").out
    for text in ("abcdef", "failed at read", "no column amuont", "pipelines.py:41", "did you mean 'amount'?"):
        assert text in failed
    loaded = flow("runs", "show", "abx").out
    assert "analytics.orders on wh: append, 12 inserted" in loaded
    assert "watermark 2026-01-31" in loaded
    several = flow("runs", "show", "ab")
    assert several.code == 2
    assert "abcdef, abxxxx" in several.err
    assert flow("runs", "show", "zzz").code == 2


def test_a_run_whose_process_ended_without_a_word_is_not_shown_as_running(flow: Any, shop: Path) -> None:
    host, pid, started = this_worker().rsplit(":", 2)
    with closing(SqliteRunLog(default_log(shop))) as log:
        log.record_run_record(record("alive", status="running", extras={"worker": this_worker()}))
        log.record_run_record(
            record("gone", status="running", minute=1, extras={"worker": f"{host}:{pid}:{int(started) + 1}"})
        )
    listed = {run["run_id"]: run["status"] for run in flow("runs", "list", "--json").document["runs"]}
    assert listed == {"alive": "running", "gone": "died"}
    assert "its process ended without a word" in flow("runs", "show", "gone").out
    assert "died" in flow("status").out


@pytest.mark.parametrize("option", ["--run-log", "--run-log-url", "--run-log-path"])
def test_a_run_is_recorded_where_the_option_says_and_the_summary_leads_there(
    flow: Any, shop: Path, option: str
) -> None:
    answer = flow("run", "people", option, "mine.db")
    assert answer.code == 0
    assert "history: flow runs list --run-log" in answer.err
    assert flow("runs", "list", option, "mine.db", "--json").document["total"] == 1
    assert not default_log(shop).exists()


def test_the_options_win_over_the_environment_and_url_over_path(
    flow: Any, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMATIX_FLOW_RUN_LOG_PATH", "env_path.db")
    flow("run", "people")
    monkeypatch.setenv("EMATIX_FLOW_RUN_LOG_URL", "sqlite:///env_url.db")
    flow("run", "people")
    flow("run", "people", "--run-log-path", "option.db")
    flow("run", "people", "--no-run-log", "--run-log-path", "never.db")
    assert sorted(path.name for path in shop.glob("*.db") if path.name != "shop.db") == [
        "env_path.db",
        "env_url.db",
        "option.db",
    ]


def test_a_run_goes_on_without_history_when_the_run_log_cannot_be_opened(flow: Any, shop: Path) -> None:
    answer = flow("run", "people", "--run-log-path", "pipelines.py/run_log.db")
    assert answer.code == 0
    assert "warning: the run log pipelines.py/run_log.db" in answer.err
    assert "continuing without history" in answer.err
    assert "200 inserted" in answer.out


def test_a_run_log_address_that_can_never_work_is_an_error(flow: Any, shop: Path) -> None:
    answer = flow("run", "people", "--run-log", "ftp://host/prefix")
    assert answer.code == 5
    assert "unknown run log address ftp://" in answer.err
    assert answer.out == ""
