"""Harnesses by name; a backend folder without one is an error (tests/contract/test_suite.py)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

    from tests.harness.base import Harness


@dataclass(frozen=True)
class Entry:
    """Which backend a harness is for, and the fixture with its server's url."""

    backend: str
    url: str | None = None


HARNESSES = {
    "postgres": Entry("postgres", "postgres_url"),
    "mariadb": Entry("mysql", "mariadb_url"),
    "mysql8": Entry("mysql", "mysql8_url"),
    "sqlite": Entry("sqlite"),
    "duckdb": Entry("duckdb"),
    "delta": Entry("delta"),
    "files-parquet": Entry("files"),
    "files-csv": Entry("files"),
    "files-orc": Entry("files"),
    "files-jsonl": Entry("files"),
}


def open_harness(name: str, request: pytest.FixtureRequest, folder: Path) -> Harness:
    """Start what the system needs and open it."""
    from tests.harness import databases, folders

    entry = HARNESSES[name]
    url = request.getfixturevalue(entry.url) if entry.url else None
    if url is not None:
        return databases.open_server(name, url)
    if name in ("sqlite", "duckdb"):
        return databases.open_file(name, folder)
    return folders.open_folder(name, folder)
