"""A run log of each kind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ematix_flow.run_log import InMemoryRunLog, RunLog, SqliteRunLog


@pytest.fixture(params=["sqlite", "memory"])
def run_log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RunLog]:
    """An empty run log; every test that takes it is run for each kind."""
    log: RunLog = SqliteRunLog(tmp_path / "run_log.db") if request.param == "sqlite" else InMemoryRunLog()
    yield log
    log.close()
