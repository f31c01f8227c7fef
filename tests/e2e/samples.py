"""What the documents' samples need around them: a module to stand in, a PostgreSQL with raw tables, variables."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import psycopg
import pytest

from ematix_flow import ematix
from ematix_flow.connections import clear_registry
from ematix_flow.declare import registry
from ematix_flow.engine.session.jars import cache_folder
from tests.e2e import documents
from tests.e2e.documents import Sample
from tests.e2e.words import worded

MODULE = worded("bike_flows")
"""The module that the samples call theirs."""
RAW_TABLES = """
DROP SCHEMA IF EXISTS reporting CASCADE; DROP SCHEMA IF EXISTS ematix_flow CASCADE; DROP SCHEMA IF EXISTS intake CASCADE;
CREATE SCHEMA intake;
CREATE TABLE intake.rides (ride_id bigint, station text, docked_at timestamptz);
INSERT INTO intake.rides VALUES
  (1, 'login', '2026-01-01 10:00:00+00'), (2, NULL, '2026-01-01 10:05:00+00'), (3, 'logout', '2026-01-01 11:00:00+00');
CREATE TABLE intake.members (member_id bigint, mail text, nick text, changed_at text);
INSERT INTO intake.members VALUES
  (1, ' Ada@Example.ORG ', 'Ada', '2026-01-01 08:00:00'), (2, '', 'Bob', '2026-01-02 08:00:00'),
  (3, NULL, NULL, '2026-01-03');
"""
CUSTOMERS = """
CREATE TABLE members (member_id bigint, mail text, nick text, changed_at text);
INSERT INTO members VALUES
  (1, ' Ada@Example.ORG ', 'Ada', '2026-01-01 08:00:00'), (2, '', 'Bob', '2026-01-02 08:00:00');
"""


class Found:
    """The module that blocks have run in; its names are asked for in the words of the twins."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, worded(name))


class Page:
    """A document being followed: every block runs in one module, and earlier blocks have run before."""

    def __init__(self, samples: dict[str, Sample], module: ModuleType) -> None:
        self.samples = samples
        self.module = module
        self.values: dict[str, str] = {}
        """What a reader puts in place of printed hosts and ports."""

    def run(self, *names: str, **given: Any) -> Any:
        """Run blocks by name, with what they mention and do not define; the module they stand in."""
        vars(self.module).update({worded(name): value for name, value in given.items()})
        for name in names:
            self.run_sample(self.samples[name])
        return Found(self.module)

    def run_sample(self, sample: Sample) -> Any:
        """Run one block."""
        exec(sample.saying(self.values).compiled(), vars(self.module))
        return Found(self.module)


class Database:
    """A PostgreSQL database, seen through psycopg; statements are in the words of the twins."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.client = psycopg.connect(url, autocommit=True, options="-c TimeZone=UTC")

    def run(self, sql: str) -> None:
        """Run statements."""
        self.client.execute(worded(sql).encode())

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Rows of a query."""
        return self.client.execute(worded(sql).encode()).fetchall()


def declared_table(name: str, *, schema: str, **columns: Any) -> Any:
    """A table that a sample mentions and no sample declares, in the words of the samples."""
    made = type(worded(name), (), {"__annotations__": {worded(column): kind for column, kind in columns.items()}})
    return ematix.table(schema=worded(schema))(made)


def open_page(document: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Page]:
    """An empty module for the blocks of a document, called as they call it, and nothing declared."""
    module = ModuleType(MODULE)
    monkeypatch.setitem(sys.modules, MODULE, module)
    registry.clear()
    clear_registry()
    yield Page(documents.fenced(document), module)
    registry.clear()
    clear_registry()


def set_variables(monkeypatch: pytest.MonkeyPatch, folder: Path, *, url: str) -> None:
    """The variables that the documents name, and a home and a working directory without any configuration."""
    monkeypatch.setenv("EMATIX_FLOW_CACHE", str(cache_folder().parent))  # the jars stay where they are
    monkeypatch.setenv("HOME", str(folder / "home"))
    (folder / "home").mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.delenv("EMATIX_FLOW_RUN_LOG_URL", raising=False)
    monkeypatch.delenv("EMATIX_FLOW_CHECKPOINTS", raising=False)
    values = {
        "EMATIX_FLOW_RUN_LOG_PATH": str(folder / "run_log.db"),
        "EMATIX_FLOW_LOGS_DIR": str(folder / "logs"),
        "EMATIX_FLOW_DSN": url,
        "DEPOT_URL": url,
        "DEPOT_DSN": url,
        "DEPOT_PASSWORD": "depot-geheim",
        "FIELD_PASSWORD": "field-geheim",
        "RIDE_BUS": "broker.example:9092",
        "RIDE_BUS_USER": "ana",
        "RIDE_BUS_PASS": "kafka-geheim",
        "SHAPES_URL": "http://registry.example:8081",
        "AWS_ACCESS_KEY_ID": "AKIAEXAMPLE",
        "AWS_SECRET_ACCESS_KEY": "aws-geheim-value",
    }
    for name, value in values.items():
        monkeypatch.setenv(worded(name), value)


def flow(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in the working directory; its words are those of the twins."""
    import ematix_flow

    source = str(Path(ematix_flow.__file__).parents[1])
    return subprocess.run(
        [sys.executable, "-m", "ematix_flow.cli", *map(worded, words)],
        capture_output=True, text=True, check=False, timeout=120,
        env={**os.environ, "PYTHONPATH": source, "NO_COLOR": "1", **variables},
    )  # fmt: skip


def succeed(*words: str, **variables: str) -> str:
    """What a command that must succeed prints on stdout."""
    done = flow(*words, **variables)
    assert done.returncode == 0, f"flow {' '.join(words)}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert "geheim" not in done.stdout + done.stderr
    return done.stdout


def parsed_command(words: Sequence[str]) -> dict[str, Any]:
    """What the command line's own parser makes of the words behind `flow`; nothing is run."""
    import click

    from ematix_flow.cli.main import root
    from ematix_flow.cli.render.output import Output

    command: click.Command = root
    context = root.make_context("flow", list(words), obj=Output())
    while isinstance(command, click.Group):
        name, found, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        assert found is not None, f"flow {' '.join(words)}"
        command, context = found, found.make_context(name, rest, parent=context)
    return context.params
