"""The suite itself: no backend is left out of it, and every promise it makes is one the manifests know."""

from __future__ import annotations

import pytest

from ematix_flow.backends.catalog import all_backends
from tests.contract.conftest import Systems
from tests.harness import HARNESSES
from tests.harness.base import Harness

STRATEGIES = {"append", "truncate", "merge", "scd2"}


def test_every_backend_has_a_harness() -> None:
    with_tables = {backend.name for backend in all_backends() if backend.batch_source or backend.batch_sink}
    assert with_tables == {entry.backend for entry in HARNESSES.values()}


def test_every_backend_offers_only_strategies_the_suite_knows() -> None:
    for backend in all_backends():
        assert backend.strategies <= STRATEGIES
        assert backend.batch_sink is not None or not backend.strategies
        assert backend.batch_source is not None or backend.stream_source is not None
        assert backend.broker_sink is None or backend.stream_delivery


@pytest.mark.parametrize("name", HARNESSES)
def test_a_harness_opens_the_connection_its_backend_serves(name: str, systems: Systems) -> None:
    opened: Harness = systems(name)
    (backend,) = (item for item in all_backends() if item.name == HARNESSES[name].backend)
    assert isinstance(opened.connection, backend.connection_types)
    assert (opened.name, opened.backend) == (name, backend.name)
