"""The `flow` commands and configuration files of the product's 0.3.0 document, as printed, in processes of their own.

Commands of the scheduler and of streams (run-due, scheduler, consume) are not batch loads; they have tests elsewhere.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from tests.e2e import documents
from tests.e2e.samples import MODULE, Database, Page, flow, succeed
from tests.e2e.words import worded

DOCUMENT = documents.NEWER

LATER = ("run-due", "scheduler", "consume", "consume-list")
PIPELINES = "Pipelines:python"
INCREMENTAL = "Modes/Incremental loads + watermarks:python"
TOML = "Connections/Declaring connections/TOML file:toml"
CONNECTIONS = "Connections/Resolution chain:sh"
PIPELINES_SHELL = "Pipelines:sh"
ONE_SHOT = "Scheduling/One-shot:sh"
SET = "Configuration reference/Connection introspection:sh"
SUMMARY = "CLI:text"


@pytest.fixture(autouse=True)
def _module(page: Page, tmp_path: Path) -> None:
    """The module that the commands name stands in the working directory."""
    blocks = (page.samples[name].text for name in (PIPELINES, INCREMENTAL))
    (tmp_path / f"{MODULE}.py").write_text("\n".join(blocks), encoding="utf-8")


@pytest.mark.parametrize(("sample", "name"), [(PIPELINES_SHELL, "load_rides"), (ONE_SHOT, "collect")])
def test_the_printed_commands_of_a_pipeline_run_it(page: Page, database: Database, sample: str, name: str) -> None:
    commands = [command for command in page.samples[sample].commands() if command[0] not in LATER]
    printed = {command[0]: succeed(*command) for command in commands}
    assert {"run", "preview", "validate"} <= set(printed)
    assert worded("SELECT ride_id, station, docked_at FROM intake.rides") in printed["preview"]
    assert printed["validate"].strip() == f"{worded(name)}: ok"
    assert worded(name) in printed.get("status", worded(name))
    assert [row[0] for row in database.rows("SELECT ride_id FROM reporting.rides ORDER BY 1")] == [1, 2, 3]


def test_the_printed_commands_list_and_check_a_connection(page: Page) -> None:
    (Path.home() / ".ematix-flow").mkdir()
    (Path.home() / ".ematix-flow" / "connections.toml").write_text(
        worded('[connections.depot]\nurl = "${DEPOT_DSN}"\n'), encoding="utf-8"
    )
    printed = {command[1]: succeed(*command) for command in page.samples[CONNECTIONS].commands()}
    assert worded("depot") in printed["list"]
    assert printed["check"].startswith(worded("depot: ok"))


def test_a_run_is_reported_in_the_status_and_in_the_history(page: Page, database: Database) -> None:
    ran = json.loads(succeed("run", "--module", MODULE, "load_rides", "--json"))
    status = json.loads(succeed("status", "--module", MODULE, "--json"))
    told = {entry["name"]: entry for entry in status}
    assert told[worded("load_rides")]["last_success"] is True
    assert told[worded("collect")]["last_run_at"] is None
    run_id = told[worded("load_rides")]["last_run_id"]
    assert run_id in json.dumps(ran)
    assert run_id in succeed("runs", "list", "--json")
    assert database.rows("SELECT run_id::text FROM ematix_flow.run_history") == [(run_id,)]


def test_the_summary_of_commands_runs(page: Page, database: Database) -> None:
    """Every line of the command summary that names one batch command, with a real name in place of <name>."""
    lines = [" ".join(command) for command in page.samples[SUMMARY].commands()]
    wanted = ["list", "run <name>", "status", "preview <name>", "validate <name>", "runs list"]
    assert [line for line in wanted if line not in lines] == []
    for line in wanted:
        assert succeed(*line.replace("<name>", "load_rides").split(), EMATIX_FLOW_MODULE=MODULE)
    for line in ("connections list", "transform list"):
        assert any(text.startswith(line) for text in lines)
        succeed(*line.split(), EMATIX_FLOW_MODULE=MODULE)
    assert database.rows("SELECT count(*) FROM reporting.rides") == [(3,)]


def test_a_configuration_file_names_connections_and_keeps_their_secrets(page: Page) -> None:
    folder = Path.home() / ".ematix-flow"
    folder.mkdir()
    (folder / "connections.toml").write_text(page.samples[TOML].text, encoding="utf-8")
    listed = {entry["name"]: entry for entry in json.loads(succeed("connections", "list", "--json"))}
    depot = worded("depot")
    assert listed[depot]["kind"] == "postgres"
    assert listed[worded("ride_bus")]["kind"] == "kafka"
    assert all(entry["problem"] is None for entry in listed.values())
    assert "connections.toml:" in listed[depot]["origin"]

    from ematix_flow import config

    (printed,) = re.findall(r'url = "(.*)"', page.samples[TOML].text)
    resolved = config.resolve_dsn(depot)
    assert ":depot-geheim@" in resolved
    assert resolved.split("://")[1] == os.path.expandvars(printed).split("://")[1]


def test_connections_are_set_listed_and_checked_as_printed(page: Page, database: Database) -> None:
    commands = page.samples[SET].commands()
    for command in sorted(commands, key=lambda words: words[1] != "set"):
        done = flow(*command, EMATIX_FLOW_MODULE="")
        if command[1] == "check":  # the printed url leads nowhere, and the command says so
            assert done.returncode == 5
            assert worded("depot") in done.stderr
        else:
            assert done.returncode == 0, done.stderr
    told = succeed("connections", "check", "depot", **{f"EMATIX_FLOW_DSN_{worded('depot').upper()}": database.url})
    assert told.startswith(worded("depot: ok"))
