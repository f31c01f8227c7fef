"""A project folder of its own for every test, and the command line to use in it."""

from __future__ import annotations

import json
import logging
import sqlite3
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ematix_flow.cli import main
from ematix_flow.declare import registry
from ematix_flow.declare.connections import clear_registry
from ematix_flow.foundation import redact

SHOP = """
from ematix_flow import Annotated, BigInt, Text, ematix, pk

print("the module speaks")


@ematix.connection
class shop:
    kind = "sqlite"
    path = "shop.db"


@ematix.table(schema="main")
class People:
    id: Annotated[BigInt, pk()]
    name: Text


@ematix.table(schema="main")
class Names:
    id: Annotated[BigInt, pk()]
    name: Text


@ematix.pipeline(target=People, target_connection="shop", mode="merge", schedule="*/5 * * * *",
                 retry={"max_attempts": 3, "backoff_seconds": 60})
def people(conn):
    return "SELECT id, name FROM raw_people"


@ematix.pipeline(target=Names, target_connection="shop", mode="merge", depends_on=["people"])
def names(conn):
    return "SELECT id, name FROM people"


@ematix.transform(target_connection="shop")
def tidy(conn):
    print("the transform speaks")
    return {"deleted": conn.execute("DELETE FROM raw_people WHERE name = 'nobody'")}
"""


@dataclass(frozen=True)
class Answer:
    """What a command gave."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """Its stdout, which is one JSON document."""
        return json.loads(self.out)


Flow = Callable[..., Answer]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder as working directory, an empty home, and nothing declared."""
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3] / "src"))
    for name in (
        "EMATIX_FLOW_MODULE",
        "EMATIX_FLOW_RUN_LOG_URL",
        "EMATIX_FLOW_RUN_LOG_PATH",
        "FLOW_OUTPUT",
        "NO_COLOR",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    _forget()
    yield folder
    _forget()


def _forget() -> None:
    registry.clear()
    clear_registry()
    redact.forget_secrets()
    logging.getLogger("ematix_flow").handlers.clear()


@pytest.fixture
def flow(project: Path, capsys: pytest.CaptureFixture[str]) -> Flow:
    """The command line, in this process: `flow("list", "--json").document`."""

    def call(*words: str) -> Answer:
        registry.clear()
        clear_registry()
        capsys.readouterr()
        code = main(list(words))
        written = capsys.readouterr()
        return Answer(code, written.out, written.err)

    return call


@pytest.fixture
def shop(project: Path) -> Path:
    """A project with two pipelines and a transform on a SQLite file of 200 people."""
    (project / "pipelines.py").write_text(SHOP)
    fill(project / "shop.db", 200)
    return project


def fill(path: Path, people: int) -> None:
    """Put so many people into the source, and nobody else."""
    with closing(sqlite3.connect(path)) as shop, shop:
        shop.execute("CREATE TABLE IF NOT EXISTS raw_people (id INTEGER, name TEXT)")
        shop.execute("DELETE FROM raw_people")
        shop.executemany("INSERT INTO raw_people VALUES (?, ?)", [(number, f"n{number}") for number in range(people)])


@pytest.fixture
def declare(shop: Path) -> Callable[[str], None]:
    """Add declarations to the shop's module."""

    def add(text: str) -> None:
        with (shop / "pipelines.py").open("a") as module:
            module.write(text)

    return add


@pytest.fixture
def fill_shop(shop: Path) -> Callable[[int], None]:
    """Give the shop's source another number of people."""
    return lambda people: fill(shop / "shop.db", people)
