"""`--json` on every command, in any position, errors included."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


def keys(value: Any) -> set[str]:
    return set(value)


def test_list_is_a_list_of_entries(flow: Any, shop: Path) -> None:
    entries = flow("list", "--json").document
    assert [(entry["name"], entry["kind"], entry["schedule"]) for entry in entries] == [
        ("names", "pipeline", None),
        ("people", "pipeline", "*/5 * * * *"),
        ("tidy", "transform", None),
    ]
    assert entries[0]["targets"] == [{"table": "main.names", "connection": "shop", "mode": "merge"}]
    assert entries[0]["depends_on"] == ["people"]
    assert entries[1]["where"].startswith("pipelines.py:")


def test_run_is_one_object_with_results_failures_and_what_was_skipped(flow: Any, shop: Path) -> None:
    answer = flow("run", "--all", "--json")
    told = answer.document
    assert answer.code == 0
    assert keys(told) == {"exit_code", "results", "failed", "skipped"}
    assert [result["pipeline"] for result in told["results"]] == ["people", "names"]
    target = told["results"][0]["targets"][0]
    assert (target["table"], target["rows_read"], target["rows_inserted"]) == ("main.people", 200, 200)
    assert "the module speaks" in answer.err


def test_a_failed_run_has_the_error_at_the_top_of_the_same_object(flow: Any, shop: Path, declare: Any) -> None:
    declare(
        '\n@ematix.pipeline(target=People, target_connection="shop", mode="append")\n'
        'def broken(conn):\n    return "SELECT id, nam FROM raw_people"\n'
    )
    answer = flow("run", "broken", "--json")
    told = answer.document
    assert (answer.code, told["exit_code"], told["error"]) == (3, 3, "MissingColumn")
    assert told["where"].startswith("pipelines.py:")
    assert told["failed"][0]["pipeline"] == "broken"
    assert told["failed"][0]["run_id"]
    assert (told["results"], told["skipped"]) == ([], [])


def test_dry_run_has_the_shape_of_a_run(flow: Any, shop: Path) -> None:
    told = flow("dry-run", "people", "--json").document
    assert told["results"][0]["status"] == "dry_run"
    assert told["results"][0]["targets"][0]["rows_inserted"] == 200


def test_preview_is_the_plan(flow: Any, shop: Path) -> None:
    told = flow("preview", "people", "--json").document
    assert told["pipeline_name"] == "people"
    assert told["targets"][0]["path"] == "same_db"


def test_validate_is_an_object_for_one_name_and_a_list_for_all(flow: Any, shop: Path) -> None:
    one = flow("validate", "people", "--json").document
    assert {"pipeline_name", "ok", "source_sql", "errors", "target_connection_name", "notes"} <= keys(one)
    assert one["ok"] is True
    assert [item["pipeline_name"] for item in flow("validate", "--all", "--json").document] == ["people", "names"]


def test_status_is_a_list_with_the_last_run_and_the_attempts(flow: Any, shop: Path) -> None:
    flow("run", "people")
    names, people = flow("status", "--json").document
    assert (names["name"], names["last_run_at"], names["last_success"]) == ("names", None, None)
    assert (people["last_success"], people["last_status"], people["attempt_count"]) == (True, "succeeded", 0)
    assert (people["max_attempts"], people["gave_up"], people["depends_on"]) == (3, False, [])
    assert people["next_due_at"].endswith("Z")


def test_runs_list_has_runs_and_their_number_and_runs_show_has_everything(flow: Any, shop: Path) -> None:
    flow("run", "--all")
    listed = flow("runs", "list", "--json").document
    assert keys(listed) == {"runs", "total", "limit", "offset"}
    assert listed["total"] == 2
    run_id = listed["runs"][0]["run_id"]
    shown = flow("runs", "show", run_id[:13], "--json").document
    assert (shown["run_id"], shown["pipeline"], shown["status"]) == (run_id, "names", "succeeded")
    assert shown["extras"]["targets"][0]["rows_inserted"] == 200


def test_connections_are_listed_checked_and_set(flow: Any, shop: Path) -> None:
    (listed,) = flow("connections", "list", "--json").document
    assert (listed["name"], listed["kind"], listed["address"], listed["problem"]) == (
        "shop",
        "sqlite",
        "sqlite:shop.db",
        None,
    )
    checked = flow("connections", "check", "shop", "--json").document
    assert (checked["name"], checked["status"], checked["exit_code"]) == ("shop", "ok", 0)
    assert [item["name"] for item in flow("connections", "check", "--json").document] == ["shop"]
    written = flow("connections", "set", "lake=delta:///tmp/lake", "--json").document
    assert written["name"] == "lake"
    assert Path(written["path"]).is_file()


def test_transforms_are_listed_and_run(flow: Any, shop: Path) -> None:
    assert [item["name"] for item in flow("transform", "list", "--json").document] == ["tidy"]
    answer = flow("transform", "run", "tidy", "--json")
    assert {"status", "metrics", "run_id"} <= keys(answer.document)
    assert answer.document["metrics"] == {"deleted": 0}
    assert "the transform speaks" in answer.err


def test_backends_are_described_by_their_manifests(flow: Any, project: Path) -> None:
    by_name = {item["name"]: item for item in flow("backends", "--json").document}
    assert by_name["sqlite"]["strategies"] == ["append", "truncate", "merge", "scd2"]
    assert by_name["sqlite"]["kinds"] == ["sqlite"]


def test_doctor_is_a_list_of_reports(flow: Any, shop: Path) -> None:
    reports = {report["name"]: report for report in flow("doctor", "--json").document}
    assert {"python", "java", "pyspark", "jars", "run log", "module", "shop"} <= keys(reports)
    assert {reports[name]["status"] for name in ("python", "pyspark", "run log", "module", "shop")} == {"ok"}


def test_init_names_its_files_and_version_its_parts(flow: Any, project: Path) -> None:
    made = flow("init", "demo", "--json").document
    assert "demo/pipelines.py" in made["files"]
    assert made["next"] == "cd demo && flow run --module pipelines --all"
    assert keys(flow("version", "--json").document) == {"version", "python", "pyspark"}


@pytest.mark.parametrize(
    "words",
    [
        ("--json", "runs", "list"),
        ("runs", "--json", "list"),
        ("runs", "list", "--json"),
        ("runs", "list", "--format", "json"),
        ("--format=json", "runs", "list"),
        ("runs", "--json"),
    ],
)
def test_json_may_be_asked_for_in_any_position(flow: Any, project: Path, words: tuple[str, ...]) -> None:
    assert flow(*words).document == {"runs": [], "total": 0, "limit": 20, "offset": 0}


def test_the_environment_may_ask_for_json_and_an_option_may_take_it_back(
    flow: Any, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLOW_OUTPUT", "json")
    assert flow("runs", "list").document["total"] == 0
    answer = flow("runs", "list", "--format", "text")
    assert (answer.out, answer.code) == ("", 0)
    assert "no runs in" in answer.err


@pytest.mark.parametrize(
    ("words", "code", "name"),
    [
        (("--json",), 2, "UsageError"),
        (("nonsense", "--json"), 2, "UsageError"),
        (("list", "--nonsense", "--json"), 2, "UsageError"),
        (("list", "--json"), 2, "UsageError"),
        (("run", "people", "--accept-deletes", "many", "--json"), 2, "UsageError"),
        (("list", "--module", "nowhere", "--json"), 3, "ModuleFailed"),
        (("runs", "show", "nothing", "--json"), 2, "UnknownName"),
        (("connections", "set", "x", "--json"), 5, "ConfigError"),
        (("runs", "list", "--run-log", "ftp://bucket/prefix", "--json"), 5, "ConfigError"),
    ],
)
def test_an_error_is_one_object_on_stdout(
    flow: Any, project: Path, words: tuple[str, ...], code: int, name: str
) -> None:
    answer = flow(*words)
    told = answer.document
    assert (answer.code, told["exit_code"], told["error"]) == (code, code, name)
    assert {"message", "where", "hint", "retryable"} <= keys(told)
    assert told["message"]
