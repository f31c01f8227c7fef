"""The `flow` commands and configuration files of the product's 0.3.0 document, as printed, in processes of their own.

Commands of the scheduler and of streams (run-due, scheduler, consume) are not batch loads; they have tests elsewhere.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e import documents
from tests.e2e.samples import Database, Page, flow, succeed

DOCUMENT = "readme-0.3.0.txt"
pytestmark = pytest.mark.skipif(not (documents.FOLDER / DOCUMENT).is_file(), reason=documents.MISSING)

MODULE = "my_pipelines"
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


@pytest.mark.parametrize(("sample", "name"), [(PIPELINES_SHELL, "ingest_events"), (ONE_SHOT, "ingest")])
def test_the_printed_commands_of_a_pipeline_run_it(page: Page, database: Database, sample: str, name: str) -> None:
    commands = [command for command in page.samples[sample].commands() if command[0] not in LATER]
    printed = {command[0]: succeed(*command) for command in commands}
    assert {"run", "preview", "validate"} <= set(printed)
    assert "SELECT event_id, name, received_at FROM raw.events" in printed["preview"]
    assert printed["validate"].strip() == f"{name}: ok"
    assert name in printed.get("status", name)
    assert [row[0] for row in database.rows("SELECT event_id FROM analytics.events ORDER BY 1")] == [1, 2, 3]


def test_the_printed_commands_list_and_check_a_connection(page: Page) -> None:
    (Path.home() / ".ematix-flow").mkdir()
    (Path.home() / ".ematix-flow" / "connections.toml").write_text(
        '[connections.warehouse]\nurl = "${WAREHOUSE_DSN}"\n', encoding="utf-8"
    )
    printed = {command[1]: succeed(*command) for command in page.samples[CONNECTIONS].commands()}
    assert "warehouse" in printed["list"]
    assert printed["check"].startswith("warehouse: ok")


def test_a_run_is_told_in_the_status_and_in_the_history(page: Page, database: Database) -> None:
    ran = json.loads(succeed("run", "--module", MODULE, "ingest_events", "--json"))
    status = json.loads(succeed("status", "--module", MODULE, "--json"))
    told = {entry["name"]: entry for entry in status}
    assert told["ingest_events"]["last_success"] is True
    assert told["ingest"]["last_run_at"] is None
    run_id = told["ingest_events"]["last_run_id"]
    assert run_id in json.dumps(ran)
    assert run_id in succeed("runs", "list", "--json")
    assert database.rows("SELECT run_id::text FROM ematix_flow.run_history") == [(run_id,)]


def test_the_summary_of_commands_runs(page: Page, database: Database) -> None:
    """Every line of the command summary that names one batch command, with a real name in place of <name>."""
    lines = [" ".join(command) for command in page.samples[SUMMARY].commands()]
    wanted = ["list", "run <name>", "status", "preview <name>", "validate <name>", "runs list"]
    assert [line for line in wanted if line not in lines] == []
    for line in wanted:
        assert succeed(*line.replace("<name>", "ingest_events").split(), EMATIX_FLOW_MODULE=MODULE)
    for line in ("connections list", "transform list"):
        assert any(text.startswith(line) for text in lines)
        succeed(*line.split(), EMATIX_FLOW_MODULE=MODULE)
    assert database.rows("SELECT count(*) FROM analytics.events") == [(3,)]


def test_a_configuration_file_names_connections_and_keeps_their_secrets(page: Page) -> None:
    folder = Path.home() / ".ematix-flow"
    folder.mkdir()
    (folder / "connections.toml").write_text(page.samples[TOML].text, encoding="utf-8")
    listed = {entry["name"]: entry for entry in json.loads(succeed("connections", "list", "--json"))}
    assert listed["warehouse"]["kind"] == "postgres"
    assert listed["kafka_prod"]["kind"] == "kafka"
    assert all(entry["problem"] is None for entry in listed.values())
    assert "connections.toml:" in listed["warehouse"]["origin"]

    from ematix_flow import config

    assert config.resolve_dsn("warehouse").endswith("user:warehouse-geheim@host/wh")


def test_connections_are_set_listed_and_checked_as_printed(page: Page, database: Database) -> None:
    commands = page.samples[SET].commands()
    for command in sorted(commands, key=lambda words: words[1] != "set"):
        done = flow(*command, EMATIX_FLOW_MODULE="")
        if command[1] == "check":  # the printed url leads nowhere, and the command says so
            assert done.returncode == 5
            assert "warehouse" in done.stderr
        else:
            assert done.returncode == 0, done.stderr
    assert succeed("connections", "check", "warehouse", EMATIX_FLOW_DSN_WAREHOUSE=database.url).startswith(
        "warehouse: ok"
    )
