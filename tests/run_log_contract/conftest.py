"""A fresh run log of every kind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ematix_flow.run_log import RunLog, from_url
from tests.run_log_contract.places import STORES, Place, fresh


@pytest.fixture(params=STORES)
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """Where an empty run log is; a test that takes it is run for every store."""
    found = fresh(request.param, folder=tmp_path, ask=request.getfixturevalue)
    for name, value in found.environment.items():
        monkeypatch.setenv(name, value)
    return found


@pytest.fixture
def run_log(place: Place) -> Iterator[RunLog]:
    """An empty run log."""
    log = from_url(place.url)
    yield log
    log.close()
