"""The `flow` commands and configuration files of the product's 0.3.0 document, as printed, in processes of their own.

Commands of the scheduler and of streams (run-due, scheduler, consume) are not batch loads; they have tests elsewhere.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import pytest

from tests.e2e import documents
from tests.e2e.samples import RAW_TABLES, Database, Page, open_page, set_variables

DOCUMENT = "readme-0.3.0.txt"
pytestmark = pytest.mark.skipif(not (documents.FOLDER / DOCUMENT).is_file(), reason=documents.MISSING)

MODULE = "my_pipelines"
LATER = ("run-due", "scheduler", "consume", "consume-list")
PIPELINES = "Pipelines:python"
INCREMENTAL = "Modes/Incremental loads + watermarks:python"
TOML = "Connections/Declaring connections/TOML file:toml"
SHELL = ("Connections/Resolution chain:sh", "Pipelines:sh", "Scheduling/One-shot:sh")
SET = "Configuration reference/Connection introspection:sh"
SUMMARY = "CLI:text"


@lru_cache(maxsize=1)
def opened(url: str) -> Database:
    """One client for the module."""
    return Database(url)


@pytest.fixture
def database(fresh_postgres: str) -> Database:
    """The warehouse, with fresh raw tables and nothing loaded."""
    found = opened(fresh_postgres)
    found.run(RAW_TABLES)
    return found


@pytest.fixture
def page(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Page]:
    """The document, and a folder with the module that its commands name."""
    set_variables(monkeypatch, tmp_path, url=database.url)
    for page in open_page(DOCUMENT, monkeypatch):
        blocks = (page.samples[name].text for name in (PIPELINES, INCREMENTAL))
        (tmp_path / f"{MODULE}.py").write_text("\n".join(blocks), encoding="utf-8")
        yield page


def flow(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in the working directory."""
    import ematix_flow

    source = str(Path(ematix_flow.__file__).parents[1])
    return subprocess.run(
        [sys.executable, "-m", "ematix_flow.cli", *words],
        capture_output=True, text=True, check=False, timeout=120,
        env={**os.environ, "PYTHONPATH": source, "NO_COLOR": "1", **variables},
    )  # fmt: skip


def succeed(*words: str, **variables: str) -> str:
    """What a command that must succeed prints on stdout."""
    done = flow(*words, **variables)
    assert done.returncode == 0, f"flow {' '.join(words)}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert "geheim" not in done.stdout + done.stderr
    return done.stdout


def test_every_printed_command_of_a_batch_pipeline_succeeds(page: Page, database: Database) -> None:
    (Path.home() / ".ematix-flow").mkdir()
    (Path.home() / ".ematix-flow" / "connections.toml").write_text(
        '[connections.warehouse]\nurl = "${WAREHOUSE_DSN}"\n', encoding="utf-8"
    )
    commands = [command for name in SHELL for command in page.samples[name].commands() if command[0] not in LATER]
    assert {command[0] for command in commands} == {"connections", "run", "status", "preview", "validate"}
    printed = {" ".join(command): succeed(*command) for command in commands}
    assert "ingest_events" in printed["status --module my_pipelines"]
    assert "SELECT event_id, name, received_at FROM raw.events" in printed["preview --module my_pipelines ingest_events"]
    assert printed["validate --module my_pipelines ingest_events"].strip() == "ingest_events: ok"
    assert "warehouse" in printed["connections list"]
    assert printed["connections check warehouse"].startswith("warehouse: ok")
    assert [row[0] for row in database.rows("SELECT event_id FROM analytics.events ORDER BY 1")] == [1, 2, 3]


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
        flow(*line.split(), EMATIX_FLOW_MODULE=MODULE).check_returncode()
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
    assert succeed("connections", "check", "warehouse", EMATIX_FLOW_DSN_WAREHOUSE=database.url).startswith("warehouse: ok")
