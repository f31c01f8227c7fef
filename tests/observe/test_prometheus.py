"""A real Prometheus fetches the endpoint, answers queries with its values, and evaluates the alert rules."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ematix_flow.metrics.prometheus import PrometheusSink
from ematix_flow.metrics.run_metrics import record_run
from tests.observe.samples import record
from tests.observe.test_metrics import STEPS, TARGETS
from tests.services.telemetry import prometheus_program, start_prometheus
from tests.services.wanted import or_skip

RULES = Path(__file__).parents[2] / "deploy" / "prometheus" / "alerts.yml"
RULE_TESTS = Path(__file__).with_name("alert_rules_test.yml")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[PrometheusSink, str]]:
    """A sink that has seen a success and a failure, and the Prometheus that fetches from it."""
    sink = PrometheusSink(http_port=0, host="127.0.0.1")
    record_run(sink, record("succeeded", extras={"targets": TARGETS}), steps=STEPS)
    record_run(sink, record("failed", "people", attempt=2))
    folder = tmp_path_factory.mktemp("prometheus")
    server = or_skip(lambda: start_prometheus(folder, f"127.0.0.1:{sink.port}", rules=RULES))
    yield sink, server.url
    server.stop()
    sink.close()


def ask(url: str, query: str) -> list[dict[str, Any]]:
    words = urllib.parse.urlencode({"query": query})
    with urllib.request.urlopen(f"{url}/api/v1/query?{words}", timeout=10) as answer:
        found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        return found


def eventually(look: Callable[[], Any], *, seconds: float = 60) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := look()) and time.monotonic() < deadline:
        time.sleep(0.3)
    return found


def value(url: str, query: str) -> float:
    found = eventually(lambda: ask(url, query))
    assert found, query
    return float(found[0]["value"][1])


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ('pipeline_runs_total{pipeline="orders",outcome="success"}', 1),
        ('pipeline_runs_total{pipeline="people",outcome="failure"}', 1),
        ('pipeline_retry_attempt{pipeline="people"}', 2),
        ('pipeline_rows_total{pipeline="orders",direction="in"}', 100),
        ('pipeline_rows_total{pipeline="orders",direction="rejected"}', 2),
        ('pipeline_bytes_total{pipeline="orders",direction="out"}', 2100),
        ('pipeline_watermark_lag_seconds{pipeline="orders"}', 3602),
        ('pipeline_duration_seconds_sum{pipeline="orders"}', 2),
        ('pipeline_step_duration_seconds_count{pipeline="orders",step="stage"}', 1),
        ('pipeline_last_success_timestamp_seconds{pipeline="orders"}', 1772366402),
    ],
)
def test_prometheus_answers_with_what_the_runs_did(
    served: tuple[PrometheusSink, str], query: str, expected: float
) -> None:
    assert value(served[1], query) == expected


def test_a_later_run_is_seen_with_the_next_fetch(served: tuple[PrometheusSink, str]) -> None:
    sink, url = served
    query = 'pipeline_runs_total{pipeline="late",outcome="success"}'
    sink.inc_runs("late", "success")
    assert value(url, query) == 1
    sink.inc_runs("late", "success")
    assert eventually(lambda: value(url, query) == 2)


def test_prometheus_loads_the_alert_rules_and_finds_them_healthy(served: tuple[PrometheusSink, str]) -> None:
    def rules() -> list[dict[str, Any]]:
        with urllib.request.urlopen(f"{served[1]}/api/v1/rules", timeout=10) as answer:
            groups = json.load(answer)["data"]["groups"]
        found = [rule for group in groups for rule in group["rules"]]
        return found if all(rule["health"] == "ok" for rule in found) else []

    found = eventually(rules)
    assert len(found) >= 5


def promtool(*words: str) -> subprocess.CompletedProcess[str]:
    program = or_skip(lambda: prometheus_program("promtool"))
    return subprocess.run([str(program), *words], capture_output=True, text=True, check=False)


def test_promtool_takes_the_alert_rules() -> None:
    done = promtool("check", "rules", str(RULES))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SUCCESS" in done.stdout


def test_the_alert_rules_fire_when_they_should_and_only_then() -> None:
    done = promtool("test", "rules", str(RULE_TESTS))
    assert done.returncode == 0, done.stdout + done.stderr
