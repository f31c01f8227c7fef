"""`flow freshness-check`: states, exit codes and alerts, from the run log that every command uses."""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from ematix_flow.foundation.clock import now
from ematix_flow.run_log import SqliteRunLog

PIPELINES = """
from ematix_flow.pipeline import register
from ematix_flow.quality import register_freshness_sla


@register(name="orders", schedule=None)
def orders():
    return {}


@register(name="people", schedule=None)
def people():
    return {}


register_freshness_sla("orders", "1h")
register_freshness_sla("people", "10h")
"""


@pytest.fixture
def late(project: Path) -> Path:
    """A project with two promises, and a history with a success nine hours ago."""
    (project / "pipelines.py").write_text(PIPELINES)
    with closing(SqliteRunLog(str(project / "history.db"))) as log:
        log.record_run("people", now() - timedelta(hours=9), True)
    return project


def succeed(project: Path, name: str) -> None:
    with closing(SqliteRunLog(str(project / "history.db"))) as log:
        log.record_run(name, now(), True)


def test_what_never_succeeded_is_late_and_what_is_nearly_late_is_a_warning(flow: Any, late: Path) -> None:
    answer = flow("freshness-check", "--run-log-path", "history.db")
    assert answer.code == 1
    header, orders, people = answer.out.splitlines()
    assert header.split() == ["NAME", "STATE", "LAST", "SUCCESS", "AGE", "ALLOWED"]
    assert orders.split() == ["orders", "breached", "never", "-", "1", "h"]
    assert people.split()[:2] == ["people", "warning"]
    assert people.endswith("9 h  10 h") or "9 h" in people


def test_json_is_a_list_of_states_and_all_is_well_is_zero(flow: Any, late: Path) -> None:
    succeed(late, "orders")
    answer = flow("freshness-check", "--run-log-path", "history.db", "--format", "json")
    assert answer.code == 0
    orders, people = answer.document
    assert set(orders) == {"pipeline", "sla_seconds", "lag_seconds", "state", "last_success", "evaluated_at"}
    assert (orders["pipeline"], orders["state"], orders["sla_seconds"]) == ("orders", "healthy", 3600)
    assert (people["state"], people["last_success"].endswith("Z")) == ("warning", True)


def test_the_default_run_log_is_asked_and_reading_makes_no_file(flow: Any, late: Path, tmp_path: Path) -> None:
    assert flow("freshness-check").code == 1
    assert not (tmp_path / "home" / ".ematix-flow" / "run_log.db").exists()
    assert flow("run", "--all").code == 0
    assert [state["state"] for state in flow("freshness-check", "--json").document] == ["healthy", "healthy"]


def test_a_module_without_promises_says_so(flow: Any, shop: Path) -> None:
    answer = flow("freshness-check")
    assert (answer.code, answer.out) == (0, "")
    assert "no pipeline of pipelines.py has a freshness_sla" in answer.err
    assert flow("freshness-check", "--json").document == []


def test_a_run_log_that_cannot_be_asked_is_no_breach(flow: Any, late: Path) -> None:
    answer = flow("freshness-check", "--run-log", "postgres://nobody@127.0.0.1:1/none", "--json")
    assert answer.code == 5
    assert answer.document["error"] in ("Unreachable", "ConnectionFailed")


def test_a_breach_is_reported_once_and_so_is_its_end(flow: Any, late: Path) -> None:
    words = ("freshness-check", "--run-log-path", "history.db", "--alerter", "stdout://")
    first, second = flow(*words), flow(*words)
    assert "[ALERT] orders is late" in first.err
    assert "it has never succeeded, and its data may be 1 h old" in first.err
    assert "[ALERT]" not in second.err
    assert (first.code, second.code) == (1, 1)
    succeed(late, "orders")
    third, fourth = flow(*words), flow(*words)
    assert "[ALERT] orders recovered" in third.err
    assert "[ALERT]" not in fourth.err
    assert (third.code, fourth.code) == (0, 0)
