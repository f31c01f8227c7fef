"""A folder and a home of its own for every test, and servers that listen on this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ematix_flow.alerters.dispatch import clear_alerters
from ematix_flow.declare import registry
from ematix_flow.declare.connections import clear_registry
from ematix_flow.foundation import redact
from ematix_flow.observe import tracing
from ematix_flow.secrets.settings import forget_stores
from tests.observe.listener import Listener

_SETTINGS = ("EMATIX_FLOW_", "VAULT_", "AWS_", "OTEL_", "OPENLINEAGE_", "GOOGLE_")
_KEPT = ("EMATIX_FLOW_ENGINE", "EMATIX_FLOW_TEST_SERVICES", "EMATIX_FLOW_TEST_VAULT", "EMATIX_FLOW_CACHE")


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder as working directory, an empty home, and nothing known from before."""
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in list(os.environ):
        if name.startswith(_SETTINGS) and name not in _KEPT:
            monkeypatch.delenv(name)
    _forget()
    yield folder
    _forget()


def _forget() -> None:
    registry.clear()
    clear_registry()
    clear_alerters()
    forget_stores()
    redact.forget_secrets()
    tracing.set_global_tracer(None)


@pytest.fixture
def listener() -> Iterator[Listener]:
    """An HTTP server that keeps what it is sent."""
    with Listener() as server:
        yield server
