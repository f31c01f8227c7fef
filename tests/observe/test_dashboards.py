"""Dashboard, alert rules and documentation speak of the metrics that exist, and of all of them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from ematix_flow.metrics.names import DIRECTIONS, HISTOGRAM, METRICS, OUTCOMES, SCHEDULER

ROOT = Path(__file__).parents[2]
DASHBOARD = ROOT / "deploy" / "grafana" / "pipelines.json"
RULES = ROOT / "deploy" / "prometheus" / "alerts.yml"
SERIES = {
    name: metric
    for metric in METRICS
    for name in ([f"{metric.name}_{part}" for part in ("bucket", "sum", "count")] if metric.kind == HISTOGRAM else [metric.name])
}  # fmt: skip
_NAME = re.compile(r"\bpipeline_[a-z_]+\b")
_SELECTOR = re.compile(r"\b(pipeline_[a-z_]+)\{([^}]*)\}")


def dashboard_queries() -> list[str]:
    found = json.loads(DASHBOARD.read_text())
    asked = [target["expr"] for panel in found["panels"] for target in panel["targets"]]
    return asked + [item["definition"] for item in found["templating"]["list"] if "definition" in item]


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def rule_queries() -> list[str]:
    return [rule["expr"] for rule in rules()]


@pytest.mark.parametrize("query", [*dashboard_queries(), *rule_queries()])
def test_every_metric_that_is_asked_for_exists_with_these_labels(query: str) -> None:
    names = set(_NAME.findall(query))
    assert names
    assert names <= set(SERIES)
    for name, selector in _SELECTOR.findall(query):
        for label, value in re.findall(r'(\w+)(?:=~?|!=|!~)"([^"]*)"', selector):
            assert label in SERIES[name].labels
            known = {"outcome": OUTCOMES, "direction": DIRECTIONS, "pipeline": (SCHEDULER, "$pipeline")}[label]
            assert set(value.split("|")) <= set(known)


def test_every_metric_is_shown_on_the_dashboard() -> None:
    shown = {SERIES[name].name for query in dashboard_queries() for name in _NAME.findall(query)}
    assert shown == {metric.name for metric in METRICS}


def test_every_panel_says_what_it_shows_and_none_covers_another() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert all(panel["title"] and panel["description"] and panel["targets"] for panel in panels)
    taken = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(taken) == len(set(taken))
    assert max(x for x, _ in taken) < 24


def test_every_rule_has_a_severity_and_a_summary() -> None:
    assert all(rule["labels"]["severity"] in ("info", "warning", "critical") for rule in rules())
    assert all(rule["annotations"]["summary"] for rule in rules())


def test_the_documentation_lists_every_metric_as_it_is() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text()
    rows = re.findall(r"^\| `(pipeline_\w+)` \| (\w+) \| ([^|]*) \| ([^|]*) \|$", page, re.MULTILINE)
    assert [(name, kind, labels, says) for name, kind, labels, says in rows] == [
        (metric.name, metric.kind, ", ".join(f"`{label}`" for label in metric.labels), metric.says)
        for metric in METRICS
    ]
