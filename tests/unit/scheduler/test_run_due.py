"""`flow run-due` as a user meets it: once per slot, upstreams first, retries, workflows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

PIPELINES = """
import pathlib
from ematix_flow import AllOf, ematix
from ematix_flow.pipeline import register

def note(name):
    with pathlib.Path("ran.txt").open("a") as out:
        out.write(name + "\\n")
    if pathlib.Path(name + ".broken").exists():
        raise ConnectionError(name + " is broken")
    return {"name": name}

@register(name="orders", schedule="0 * * * *", retry={"max_attempts": 2, "base_secs": 60})
def orders():
    return note("orders")

@register(name="prices", schedule="0 * * * *")
def prices():
    return note("prices")

@register(name="revenue", schedule="0 * * * *", depends_on=["orders"])
def revenue():
    return note("revenue")

@register(name="report", schedule=None)
def report():
    return note("report")

ematix.workflow(name="reporting", jobs=["report"], triggered_by=AllOf("revenue", "prices"))
"""


class Project:
    def __init__(self, folder: Path, *, pipelines: str = PIPELINES) -> None:
        self.folder = folder
        (folder / "pipelines.py").write_text(pipelines)
        self.environment = {**os.environ, "EMATIX_FLOW_RUN_LOG_PATH": str(folder / "run_log.db"), "HOME": str(folder)}

    def run_due(self, now: str, *words: str) -> tuple[int, Any, str]:
        command = [sys.executable, "-m", "ematix_flow.cli", "run-due", "--now", now, *words]
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=60
        )
        return done.returncode, json.loads(done.stdout) if done.stdout.strip() else None, done.stderr

    def ran(self) -> list[str]:
        file = self.folder / "ran.txt"
        return file.read_text().split() if file.exists() else []


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def names(told: Any, what: str) -> list[str]:
    return [item.get("_pipeline") or item["pipeline"] for item in told[what]]


def test_what_is_due_runs_once_in_order_and_its_success_fires_the_workflow(project: Project) -> None:
    code, told, said = project.run_due("2026-11-16T03:00:20Z")
    assert code == 0, said
    assert project.ran() == ["orders", "prices", "revenue", "report"]
    assert names(told, "ran") == project.ran()
    again = project.run_due("2026-11-16T03:00:50Z")[1]
    assert (again["ran"], again["failed"], len(project.ran())) == ([], [], 4)
    project.run_due("2026-11-16T04:00:10Z")
    assert len(project.ran()) == 8


def test_a_failure_skips_its_children_and_is_tried_again_after_its_backoff(project: Project) -> None:
    (project.folder / "orders.broken").touch()
    code, told, said = project.run_due("2026-11-16T03:00:20Z")
    assert code == 1
    assert (names(told, "failed"), names(told, "skipped")) == (["orders"], ["revenue"])
    assert told["failed"][0]["gave_up"] is False
    assert "orders is broken" in said
    _, early, _ = project.run_due("2026-11-16T03:01:00Z")
    assert (early["ran"], "retry backoff" in early["skipped"][0]["reason"]) == ([], True)
    (project.folder / "orders.broken").unlink()
    code, late, said = project.run_due("2026-11-16T03:05:00Z")
    assert code == 0, said
    assert names(late, "ran") == ["orders", "revenue", "report"]


def test_the_last_attempt_gives_up_until_the_next_slot(project: Project) -> None:
    (project.folder / "orders.broken").touch()
    project.run_due("2026-11-16T03:00:20Z")
    assert project.run_due("2026-11-16T03:05:00Z")[1]["failed"][0]["gave_up"] is True
    given_up = project.run_due("2026-11-16T03:10:00Z")[1]
    assert (given_up["failed"], "gave up" in given_up["skipped"][0]["reason"]) == ([], True)
    (project.folder / "orders.broken").unlink()
    assert "orders" in names(project.run_due("2026-11-16T04:00:00Z")[1], "ran")


def test_many_processes_at_once_fire_a_slot_once(project: Project) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: project.run_due("2026-11-16T03:00:20Z"), range(4)))
    assert sorted(project.ran()) == ["orders", "prices", "report", "revenue"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (('schedule="0 * * * *", depends_on', 'schedule="99 * * * *", depends_on'), "99 * * * *"),
        (('triggered_by=AllOf("revenue"', 'triggered_by=AllOf("revenu"'), "revenue"),
        (('jobs=["report"]', 'jobs=["raport"]'), "report"),
    ],
)
def test_a_declaration_that_cannot_work_is_refused_before_anything_runs(
    tmp_path: Path, change: tuple[str, str], says: str
) -> None:
    project = Project(tmp_path, pipelines=PIPELINES.replace(*change))
    code, _, said = project.run_due("2026-11-16T03:00:20Z")
    assert code == 3
    assert says in said
    assert "pipelines.py" in said
    assert "Traceback" not in said
    assert project.ran() == []


MESSAGES = """
import pathlib
from ematix_flow import ematix
from ematix_flow.pipeline import register

@register(name="load", schedule=None)
def load():
    with pathlib.Path("ran.txt").open("a") as out:
        out.write("load\\n")

@register(name="report", schedule=None, depends_on=["load"])
def report():
    with pathlib.Path("ran.txt").open("a") as out:
        out.write("report\\n")

ematix.workflow(name="arrivals", jobs=["load", "report"], on_message="orders_arrived")
"""


def test_a_message_fires_its_workflow_once(tmp_path: Path) -> None:
    project = Project(tmp_path, pipelines=MESSAGES)
    assert project.run_due("2026-11-16T03:00:10Z")[1]["ran"] == []

    def send(name: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "ematix_flow.cli", "send", name]
        return subprocess.run(
            command, cwd=tmp_path, env=project.environment, capture_output=True, text=True, timeout=60, check=False
        )

    assert send("orders_arived").returncode == 2
    assert "orders_arrived" in send("orders_arived").stderr
    assert send("orders_arrived").returncode == 0
    assert send("orders_arrived").returncode == 0
    project.run_due("2026-11-16T03:01:10Z")
    assert project.ran() == ["load", "report"]
    assert project.run_due("2026-11-16T03:02:10Z")[1]["ran"] == []
    send("orders_arrived")
    project.run_due("2026-11-16T03:03:10Z")
    assert project.ran() == ["load", "report", "load", "report"]
