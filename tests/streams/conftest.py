"""Streams share one session with every jar, and keep their things out of the person's folders."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ematix_flow.run_log.sqlite import SqliteRunLog
from tests.services.kafka import Kafka
from tests.streams.kafka_topics import new_topic
from tests.streams.operated import Events

JARS = {"delta", "s3a", "kafka", "avro"}


@pytest.fixture(autouse=True, scope="session")
def _own_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    patch = pytest.MonkeyPatch()
    home = tmp_path_factory.mktemp("home")
    for name, place in {
        "EMATIX_FLOW_LOGS_DIR": "logs", "EMATIX_FLOW_RUN_LOG_PATH": "run_log.db", "EMATIX_FLOW_STAGE_DIR": "stage",
        "EMATIX_FLOW_CHECKPOINTS": "checkpoints",
    }.items():  # fmt: skip
        patch.setenv(name, str(home / place))
    yield
    patch.undo()


@pytest.fixture(scope="session")
def every_jar() -> None:
    """Start the session with all that streams may need, so that no test has to start another."""
    from ematix_flow.engine.session.session import spark_session

    spark_session(JARS)


@pytest.fixture
def homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoints, logs and runs below the test's own folder, where it looks at them and other processes find them."""
    monkeypatch.setenv("EMATIX_FLOW_CHECKPOINTS", str(tmp_path / "checkpoints"))
    monkeypatch.setenv("EMATIX_FLOW_LOGS_DIR", str(tmp_path / "logs"))
    monkeypatch.setenv("EMATIX_FLOW_RUN_LOG_PATH", str(tmp_path / "runs.db"))


@pytest.fixture
def run_log(tmp_path: Path) -> Iterator[SqliteRunLog]:
    """The history of the test."""
    log = SqliteRunLog(str(tmp_path / "runs.db"))
    yield log
    log.close()


@pytest.fixture
def events(kafka: Kafka, tmp_path: Path) -> Events:
    """A topic of its own, and two tables."""
    return Events(kafka, new_topic(kafka), tmp_path)
