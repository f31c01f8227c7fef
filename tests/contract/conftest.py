"""The systems under contract: a test marked `offers("merge")` runs for every backend whose manifest offers it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from ematix_flow.backends.catalog import all_backends
from ematix_flow.contract.backend import Backend, QueryStage
from ematix_flow.engine import warm
from ematix_flow.engine.cluster.shipping import is_connect
from ematix_flow.engine.session.session import spark_session
from ematix_flow.engine.session.session import stop_session as stop_session
from tests.cluster.places import TestCluster, remove
from tests.contract import native
from tests.contract.gaps import GAPS
from tests.harness import HARNESSES, open_harness
from tests.harness.base import Harness

JARS = {"delta", "s3a", "kafka", "avro"}
Systems = Callable[[str], Harness]
_KINDS = 2
"""Of servers, files and folders, so many run a test that is not core: each pair of them runs a third of the tests."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test per system that makes the promise."""
    if "harness" not in metafunc.fixturenames:
        return
    marker = metafunc.definition.get_closest_marker("offers")
    wanted = marker.args[0] if marker else None
    offered = {backend.name: _offers(backend) for backend in all_backends()}
    there = {name: offered[entry.backend] for name, entry in HARNESSES.items() if entry.backend in offered}
    names = [name for name, promises in there.items() if wanted is None or wanted in promises]
    names = [name for name in names if not native.is_refused(name)]
    only = metafunc.definition.get_closest_marker("systems")
    if only:
        names = [name for name in names if name in only.args]
    chosen = _by_default(names, metafunc.definition)
    cases = [pytest.param(name, marks=() if name in chosen else pytest.mark.full) for name in names]
    metafunc.parametrize("harness", cases, indirect=True, scope="session")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What a system does not keep yet must fail, and says why."""
    for item in items:
        alone = item.get_closest_marker("embedded")
        if alone is not None and os.environ.get(native.ENGINE_VARIABLE) in ("warm", "cluster"):
            item.add_marker(pytest.mark.skip(reason=f"needs an embedded session: {alone.args[0]}"))
        if isinstance(item, pytest.Function):
            params = item.callspec.params if hasattr(item, "callspec") else {}
            reason = GAPS.get((item.originalname, str(params.get("harness")))) or native.gap(
                item.originalname, item.name
            )
            if reason is not None:
                item.add_marker(pytest.mark.xfail(strict=True, reason=reason))


def _by_default(systems: list[str], test: Any) -> set[str]:
    """Return who runs the test by default: those it names, all where it is core, else one of two kinds in turn."""
    named = test.get_closest_marker("by_default")
    if named:
        return set(named.args)
    if test.get_closest_marker("core"):
        return set(systems)
    kinds: dict[str, list[str]] = {}
    for system in systems:
        kinds.setdefault(HARNESSES[system].kind, []).append(system)
    kinds.pop("", None)
    turn = crc32(test.originalname.encode())  # the same in every process, and for a test however many others there are
    if len(kinds) > _KINDS:
        kinds.pop(sorted(kinds)[turn // 16 % len(kinds)])
    return {members[turn % len(members)] for members in kinds.values()}


def _offers(backend: Backend) -> frozenset[str]:
    """The strategies, "same_db" where a stage can be filled inside the system, and "changes" where it takes change data."""
    more = {"same_db"} if isinstance(backend.batch_sink, type) and issubclass(backend.batch_sink, QueryStage) else set()
    return backend.strategies | more | ({"changes"} if backend.takes_changes else set())


@pytest.fixture(scope="session")
def systems(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Systems]:
    """Any system by name, opened once per worker."""
    opened: dict[str, Harness] = {}

    with ExitStack() as open_until:

        def system(name: str) -> Harness:
            if name not in opened:
                opened[name] = open_harness(name, request, tmp_path_factory.mktemp(name.replace("-", "_")))
                open_until.callback(opened[name].close)
            return opened[name]

        yield system


@pytest.fixture(scope="session")
def harness(request: pytest.FixtureRequest, systems: Systems) -> Harness:
    """The system under test."""
    return systems(request.param)


@pytest.fixture
def spark() -> Any:
    """The engine's own session, with Delta and S3; of a warm engine that was replaced, that of the new one."""
    return spark_session(JARS)


@pytest.fixture(autouse=True, scope="session")
def _own_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Run log, stages and Spark's log stay out of the person's folders; the session starts once, with all jars."""
    patch = pytest.MonkeyPatch()
    home = tmp_path_factory.mktemp("home")
    patch.setenv("EMATIX_FLOW_LOGS_DIR", str(home / "logs"))
    patch.setenv("EMATIX_FLOW_RUN_LOG_PATH", str(home / "run_log.db"))
    patch.setenv("EMATIX_FLOW_STAGE_DIR", str(home / "stage"))
    if native.is_native():
        patch.setenv("EMATIX_FLOW_ENGINE", "sail")
    wanted = os.environ.get(native.ENGINE_VARIABLE)
    engine = _warm_engine(patch, home) if wanted == "warm" else None
    cluster = _cluster(patch, tmp_path_factory.mktemp("cluster")) if wanted == "cluster" else None
    # Plans that are made anew from a stage's sizes pay off for large stages only.
    session = spark_session(JARS)
    assert engine is None or is_connect(session)
    session.conf.set("spark.sql.adaptive.enabled", "false")
    yield
    if engine is not None:
        warm.stop_engine(engine)
    if cluster is not None:
        stop_session()
        cluster.stop()
        remove(cluster.folder)
    patch.undo()


def _warm_engine(patch: pytest.MonkeyPatch, home: Path) -> warm.WarmEngine:
    """CONTRACT_ENGINE=warm runs the suite as a client of a warm engine."""
    patch.setenv("EMATIX_FLOW_ENGINE", "auto")
    patch.setenv("EMATIX_FLOW_ENGINE_DIR", str(home / "engine"))
    engine, _ = warm.start_engine(JARS, {}, keep=warm.KeepWarm(True, "contract"))
    return engine


def _cluster(patch: pytest.MonkeyPatch, folder: Path) -> TestCluster:
    """CONTRACT_ENGINE=cluster runs the suite as the driver of a standalone cluster with two workers."""
    cluster = TestCluster(folder)
    cluster.write_settings('wait = 60\n"spark.sql.shuffle.partitions" = 3')
    cluster.start()
    for name in (
        "EMATIX_FLOW_CLUSTER_DIR",
        "EMATIX_FLOW_ENGINE",
        "EMATIX_FLOW_MASTER",
        "EMATIX_FLOW_DRIVER_MEMORY",
        "HOME",
    ):
        patch.setenv(name, cluster.environment[name])
    return cluster
