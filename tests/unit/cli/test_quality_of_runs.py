"""Checks as a person meets them: what a refused load says, what the history keeps, who is alerted."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

CHECKED = """

@ematix.table(schema="main")
class Checked:
    id: Annotated[BigInt, pk()]
    name: Text


def expectations(t):
    t.column("id").not_null().between(0, 197)
    t.column("name").regex("^n[0-9]+$")


@ematix.pipeline(target=Checked, target_connection="shop", mode="merge", expectations=expectations{more})
def checked(conn):
    return "SELECT id, name FROM raw_people"
"""


@pytest.fixture
def checked(declare: Callable[[str], None]) -> Callable[..., None]:
    """Declare the pipeline with further keywords."""
    return lambda more="": declare(CHECKED.format(more=more))


def alerts(answer: Any) -> list[str]:
    lines = [line.removeprefix("[ALERT] ") for line in answer.err.splitlines() if line.startswith("[ALERT] ")]
    return [line for line in lines if not line.startswith(" ")]


def test_a_refused_load_says_which_checks_where_and_what_now(flow: Any, shop: Path, checked: Any) -> None:
    checked(', on_quality_failure="fail"')
    answer = flow("run", "checked")
    assert answer.code == 4
    said = answer.err
    assert (
        "✗ checked failed while checking the rows: 1 of 3 checks refuses the rows for main.checked; nothing was loaded"
        in said
    )
    assert "  id.between: 2 rows outside of 0 … 197 (for example id=198; id=199)" in said
    assert 't.column("id").not_null().between(0, 197)' in said
    assert "pipelines.py:" in said
    assert "not retried: it will not heal by itself" in said
    assert "next: flow preview checked --rows 5" in said
    assert "Traceback" not in said
    with closing(sqlite3.connect(shop / "shop.db")) as database:
        assert database.execute("SELECT COUNT(*) FROM checked").fetchone() == (0,)


def test_the_history_of_a_refused_load_keeps_the_results_of_its_checks(flow: Any, shop: Path, checked: Any) -> None:
    checked(', on_quality_failure="fail"')
    told = flow("run", "checked", "--json").document
    assert (told["error"], told["exit_code"], told["retryable"]) == ("QualityCheckFailed", 4, False)
    assert told["quality"]["checks_failed"] == 1
    run_id = told["failed"][0]["run_id"]
    shown = flow("runs", "show", run_id)
    assert "error     1 of 3 checks refuses the rows for main.checked; nothing was loaded" in shown.out
    assert "          id.between: 2 rows outside of 0 … 197" in shown.out
    kept = flow("runs", "show", run_id, "--json").document["extras"]["error"]["quality"]
    assert [(item["name"], item["verdict"], item["failing"]) for item in kept["assertions"]] == [
        ("id.not_null", "pass", 0), ("id.between", "fail", 2), ("name.regex", "pass", 0),
    ]  # fmt: skip
    assert kept["assertions"][1]["samples"] == ["id=198", "id=199"]
    assert "id.between" not in flow("runs", "list").out


def test_with_warn_the_run_succeeds_and_says_what_is_wrong(flow: Any, shop: Path, checked: Any) -> None:
    checked()
    answer = flow("run", "checked")
    assert answer.code == 0
    assert "quality: id.between: 2 rows outside of 0 … 197 (for example id=198; id=199)" in answer.out
    (run,) = flow("runs", "list", "--json").document["runs"]
    shown = flow("runs", "show", run["run_id"])
    assert "quality fail: 2 of 3 checks passed" in shown.out
    assert "id.between: 2 rows outside of 0 … 197" in shown.out
    assert "check " in shown.out
    assert flow("runs", "show", run["run_id"], "--json").document["extras"]["quality"]["verdict"] == "fail"


def test_the_environment_may_skip_the_checks_and_the_run_says_so(
    flow: Any, shop: Path, checked: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked(', on_quality_failure="fail"')
    monkeypatch.setenv("EMATIX_SKIP_QUALITY", "1")
    answer = flow("run", "checked")
    assert answer.code == 0
    assert "the checks were skipped, because EMATIX_SKIP_QUALITY is set" in answer.out
    (run,) = flow("runs", "list", "--json").document["runs"]
    assert "quality skipped" in flow("runs", "show", run["run_id"]).out
    monkeypatch.setenv("EMATIX_SKIP_QUALITY", "0")
    assert flow("run", "checked").code == 4


def test_preview_and_dry_run_know_the_checks(flow: Any, shop: Path, checked: Any) -> None:
    checked(', on_quality_failure="fail"')
    plan = flow("preview", "checked").out
    assert "checks   id is between 0 and 197 (else fail)" in plan
    assert "Stage → Expectations → CheckBefore" in plan
    assert flow("dry-run", "checked").code == 4


def test_a_refused_load_is_an_alert_once_until_it_passes(
    flow: Any, shop: Path, checked: Any, fill_shop: Callable[[int], None]
) -> None:
    checked(', on_quality_failure="fail"')
    words = ("run", "checked", "--alerter", "stdout://")
    assert alerts(flow(*words)) == ["checked was not loaded: its checks refuse the data"]
    assert alerts(flow(*words)) == []
    fill_shop(100)
    (told,) = alerts(flow(*words))
    assert told.startswith("checked recovered")
    assert alerts(flow(*words)) == []


def test_a_load_that_goes_on_is_an_alert_only_where_that_is_wanted(
    flow: Any, shop: Path, checked: Any, fill_shop: Callable[[int], None]
) -> None:
    checked(", alert_on_quality_warn=True")
    words = ("run", "checked", "--alerter", "stdout://")
    first = flow(*words)
    assert alerts(first) == ["checked loaded data that its checks refuse"]
    assert "id.between: 2 rows outside of 0 … 197" in first.err
    assert alerts(flow(*words)) == []
    fill_shop(100)
    (told,) = alerts(flow(*words))
    assert told.startswith("checked recovered")


def test_without_that_option_no_alert_is_sent(flow: Any, shop: Path, checked: Any) -> None:
    checked()
    assert alerts(flow("run", "checked", "--alerter", "stdout://")) == []


def test_a_wrong_check_is_reported_with_its_line_before_anything_runs(flow: Any, shop: Path, declare: Any) -> None:
    declare(CHECKED.format(more="").replace('column("name")', 'column("nmae")'))
    answer = flow("list")
    assert answer.code == 3
    assert "'nmae', which main.checked does not declare" in answer.err
    assert "did you mean 'name'?" in answer.err
    assert 't.column("nmae").regex("^n[0-9]+$")' in answer.err
