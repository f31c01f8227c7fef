"""The orchestration samples of the product's 0.3.0 document, as printed: run-due, the scheduler, run logs, observers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.e2e import documents
from tests.e2e.samples import MODULE, Database, Page, flow, succeed
from tests.e2e.words import worded

DOCUMENT, LOAD_RIDES = documents.NEWER, worded("load_rides")

PIPELINES = "Pipelines:python"
CRON = "Scheduling/Cron (schedule= on the decorator):sh"
HISTORY = "Scheduling/Run history/RunLog backends:sh"
SUMMARY = "CLI:text"
ON_THE_SLOT = ("--now", "2099-11-16T02:05:30Z")


@pytest.fixture(autouse=True)
def _module(page: Page, tmp_path: Path) -> None:
    """The module that the commands name stands in the working directory."""
    (tmp_path / f"{MODULE}.py").write_text(page.samples[PIPELINES].text, encoding="utf-8")


def _ran(printed: str) -> list[str]:
    told: dict[str, Any] = json.loads(printed)
    assert told["failed"] == []
    return sorted(entry["_pipeline"] for entry in told["ran"])


def test_run_due_as_printed_fires_a_slot_once(page: Page, database: Database) -> None:
    (command,) = page.samples[CRON].commands()
    assert _ran(succeed(*command, *ON_THE_SLOT)) == [LOAD_RIDES]
    before = database.rows("SELECT count(*) FROM reporting.rides")
    assert _ran(succeed(*command, *ON_THE_SLOT)) == []
    assert _ran(succeed(*command)) == []
    assert database.rows("SELECT count(*) FROM reporting.rides") == before


def test_run_due_with_a_run_log_that_does_not_answer_warns_and_goes_on(page: Page, database: Database) -> None:
    (command,) = page.samples[HISTORY].commands()
    done = flow(*command, *ON_THE_SLOT)
    assert done.returncode == 0, done.stderr
    assert _ran(done.stdout) == [LOAD_RIDES]
    log = urlsplit(command[command.index("--run-log") + 1])
    assert str(log.hostname) in done.stderr
    assert "continuing without history" in done.stderr
    assert f"{log.password}@" not in done.stderr + done.stdout
    assert database.rows("SELECT count(*) FROM reporting.rides")[0][0] > 0


def test_run_due_with_the_run_log_of_the_sample_keeps_its_history_there(page: Page, database: Database) -> None:
    (command,) = page.samples[HISTORY].commands()
    url = database.url.replace("postgresql://", "postgres://")
    there = [url if word.startswith("postgres://") else word for word in command]
    assert _ran(succeed(*there, *ON_THE_SLOT)) == [LOAD_RIDES]
    runs = json.loads(succeed("runs", "list", "--run-log", url, "--json"))["runs"]
    assert {run["pipeline"] for run in runs} == {LOAD_RIDES}


def test_the_scheduler_of_the_summary_hands_runs_to_workers(page: Page, database: Database) -> None:
    (printed,) = [command for command in page.samples[SUMMARY].commands() if command[0] == "scheduler"]
    words = ["subprocess://" if word == "<url>" else word for word in printed]
    queued = json.loads(succeed("retry", "load_rides", "--queue", "--json", EMATIX_FLOW_MODULE=MODULE))
    succeed(*words, "--poll-interval", "0.5", "--max-iterations", "4", EMATIX_FLOW_MODULE=MODULE)
    shown = json.loads(succeed("runs", "show", queued["run_id"], "--json"))
    assert shown["status"] == "succeeded", shown
    assert database.rows("SELECT count(*) FROM reporting.rides")[0][0] > 0
