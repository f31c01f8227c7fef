"""The project of `flow init`, used as its README says: run, run again, change something, run once more."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.timeout(1500)  # five commands that start Spark, on a machine that may be busy
FLOW = (sys.executable, "-m", "ematix_flow.cli")


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new project, with a run log of its own."""
    home = tmp_path_factory.mktemp("starter")
    subprocess.run([*FLOW, "init", "shop"], cwd=home, check=True, capture_output=True)
    return home / "shop"


def run(shop: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A `flow` command inside the project."""
    environment = {**os.environ, "EMATIX_FLOW_RUN_LOG_PATH": str(shop / "run_log.db")}
    return subprocess.run([*FLOW, *words], cwd=shop, env=environment, capture_output=True, text=True, timeout=540)


def loaded(shop: Path) -> dict[str, dict[str, Any]]:
    """Run everything; the first target of each pipeline by the pipeline's name."""
    done = run(shop, "run", "--module", "pipelines", "--all", "--json")
    assert done.returncode == 0, done.stderr + done.stdout
    return {result["pipeline"]: result["targets"][0] for result in json.loads(done.stdout)["results"]}


def change_block(shop: Path) -> str:
    """The Python that the README offers to change the data with."""
    found = re.search(r"python - <<'END'\n(.*?)\nEND\n", (shop / "README.md").read_text(), re.DOTALL)
    assert found is not None
    return found[1]


def rows(shop: Path, query: str) -> list[tuple[Any, ...]]:
    """What DuckDB itself says about the warehouse."""
    import duckdb

    with duckdb.connect(str(shop / "data" / "warehouse.duckdb"), read_only=True) as warehouse:
        answer: list[tuple[Any, ...]] = warehouse.execute(query).fetchall()
    return answer


@pytest.mark.full
def test_the_project_does_what_its_readme_says(shop: Path) -> None:
    first = loaded(shop)
    assert list(first) == ["load_orders", "sync_customers", "daily_revenue"]
    assert {name: target["rows_inserted"] for name, target in first.items()} == {
        "load_orders": 4000,
        "sync_customers": 500,
        "daily_revenue": 31,
    }
    assert first["daily_revenue"]["path"] == "same_db"
    assert "2026-01-31 23:59" in first["load_orders"]["watermark"]

    second = loaded(shop)
    assert {name: target["rows_inserted"] for name, target in second.items()} == dict.fromkeys(first, 0)
    assert (second["sync_customers"]["rows_unchanged"], second["daily_revenue"]["rows_unchanged"]) == (500, 31)

    subprocess.run([sys.executable, "-c", change_block(shop)], cwd=shop, check=True)
    third = loaded(shop)
    assert third["load_orders"]["rows_inserted"] == 1
    assert (third["sync_customers"]["rows_inserted"], third["sync_customers"]["rows_closed"]) == (12, 12)
    assert (third["daily_revenue"]["rows_inserted"], third["daily_revenue"]["rows_updated"]) == (1, 0)

    assert rows(shop, "SELECT count(*), count(DISTINCT order_id) FROM analytics.orders") == [(4001, 4001)]
    assert rows(shop, "SELECT revenue FROM analytics.daily_revenue WHERE day = '2026-02-01'")[0][0] == pytest.approx(
        99.5
    )

    history = json.loads(run(shop, "runs", "list", "--json").stdout)
    assert history["total"] == 9
    assert {item["status"] for item in history["runs"]} == {"succeeded"}


@pytest.mark.full("the same commands with --json are tested")
def test_people_see_one_line_for_each_pipeline_and_nothing_of_java(shop: Path) -> None:
    done = run(shop, "run", "--all")
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    assert [line.split()[:2] for line in lines] == [
        ["load_orders", "append"],
        ["sync_customers", "scd2"],
        ["daily_revenue", "merge"],
    ]
    assert "(inside DuckDB)" in lines[2]
    assert ["lane" in line for line in lines] == [True, True, False]
    assert re.search(r"3 ok · engine started in .* s \(Spark, local\[.*\]\) · history: flow runs list", done.stderr)
    for word in ("WARN", "log4j", "JVM", "Setting default log level", "Traceback"):
        assert word not in done.stdout + done.stderr


@pytest.mark.full
def test_the_plan_is_reported_before_the_load_with_some_rows(shop: Path) -> None:
    done = run(shop, "preview", "sync_customers", "--rows", "3", "--json")
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    assert len(plan["sample"]) == 3
    assert plan["targets"][0]["merge_keys"] == ["customer_id"]
    assert all(row[1] == row[1].strip().lower() for row in plan["sample"])
