"""Harnesses by name; a backend folder without one is an error (tests/contract/test_suite.py).

A backend of another package brings its harness under the entry point group `ematix_flow.harnesses`.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

    from tests.harness.base import Harness


@dataclass(frozen=True)
class Entry:
    """Which backend a harness is for, the fixture with its server's url, and the kind of system it is.

    Systems of a kind share most of their code: by default they run the tests marked `core`, and take turns with the others,
    of which two kinds run each.
    A system without a kind runs only those marked `core`, because its tests are slow or its server has to be built.
    """

    backend: str
    url: str | None = None
    kind: str = ""
    module: str = ""
    """Where the harness is, unless it is here under the backend's name."""


HARNESSES = {
    "postgres": Entry("postgres", "postgres_url", kind="server"),
    "mariadb": Entry("mysql", "mariadb_url", kind="server"),
    "mysql8": Entry("mysql", "mysql8_url", kind="server"),
    "sqlite": Entry("sqlite", kind="file"),
    "duckdb": Entry("duckdb", kind="file"),
    "delta": Entry("delta"),
    "files-parquet": Entry("files", kind="folder"),
    "files-csv": Entry("files", kind="folder"),
    "files-orc": Entry("files", kind="folder"),
    "files-jsonl": Entry("files", kind="folder"),
    "delta-s3": Entry("delta_s3", "s3_url"),
    "files-s3-parquet": Entry("files_s3", "s3_url"),
    "files-s3-csv": Entry("files_s3", "s3_url"),
    "files-s3-orc": Entry("files_s3", "s3_url"),
    "files-s3-jsonl": Entry("files_s3", "s3_url"),
    **{point.name: Entry(point.name, module=point.value) for point in entry_points(group="ematix_flow.harnesses")},
}


def open_harness(name: str, request: pytest.FixtureRequest, folder: Path) -> Harness:
    """Start what the system needs and open it: a database on its server, or a file or folder inside `folder`."""
    entry = HARNESSES[name]
    module = importlib.import_module(entry.module or f"tests.harness.{entry.backend}")
    opened: Harness = module.open_system(name, request.getfixturevalue(entry.url) if entry.url else folder)
    return opened
