"""The systems under contract: a test marked `offers("merge")` runs for every backend whose manifest offers it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ematix_flow.backends.catalog import all_backends
from ematix_flow.engine.session import spark_session
from tests.harness import HARNESSES, open_harness
from tests.harness.base import Harness


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test per system that makes the promise."""
    if "harness" not in metafunc.fixturenames:
        return
    marker = metafunc.definition.get_closest_marker("offers")
    wanted = marker.args[0] if marker else None
    offered = {backend.name: backend.strategies for backend in all_backends()}
    there = {name: offered[entry.backend] for name, entry in HARNESSES.items() if entry.backend in offered}
    names = [name for name, strategies in there.items() if wanted is None or wanted in strategies]
    only = metafunc.definition.get_closest_marker("systems")
    if only:
        names = [name for name in names if name in only.args]
    metafunc.parametrize("harness", names, indirect=True, scope="session")


@pytest.fixture(scope="session")
def harness(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    """The system, opened once per worker."""
    opened = open_harness(request.param, request, tmp_path_factory.mktemp(request.param.replace("-", "_")))
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def spark() -> Any:
    """The engine's own session, with Delta."""
    return spark_session({"delta"})


@pytest.fixture(autouse=True, scope="session")
def _own_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Run log and Spark's log stay out of the person's home; the session starts once, with all jars."""
    patch = pytest.MonkeyPatch()
    home = tmp_path_factory.mktemp("home")
    patch.setenv("EMATIX_FLOW_LOGS_DIR", str(home / "logs"))
    patch.setenv("EMATIX_FLOW_RUN_LOG_PATH", str(home / "run_log.db"))
    spark_session({"delta"})
    yield
    patch.undo()
