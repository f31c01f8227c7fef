"""kill -9 of a stream that applies changes: rows, and what is remembered of their keys, are those of one that was not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.full import IS_FULL
from tests.services.kafka import Kafka
from tests.streams.change_events import debezium
from tests.streams.kafka_topics import new_topic, send

ROOT = Path(__file__).resolve().parents[2]
EACH = 60


class Mirrored:
    """A topic, a target, and what the target should hold."""

    def __init__(self, kafka: Kafka, target: str, folder: Path) -> None:
        self._kafka, self._topic, self.told = kafka, new_topic(kafka), 0
        self.expected: dict[int, str] = {}
        self._environment = {
            **os.environ, "CRASH_SOURCE": f"{kafka.open}|{self._topic}", "CRASH_TARGET": target, "HOME": str(folder),
            "EMATIX_FLOW_RUN_LOG_PATH": str(folder / "run_log.db"), "EMATIX_FLOW_STAGE_DIR": str(folder / "stage"),
            "EMATIX_FLOW_CHECKPOINTS": str(folder / "checkpoints"), "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
        }  # fmt: skip

    def tell(self) -> None:
        """Creates, updates and deletes; and once more what was told before."""
        first, self.told = self.told, self.told + EACH
        events = []
        for number in range(first, self.told):
            events.append(debezium("c", {"id": number, "name": "new"}, at=number))
            self.expected[number] = "new"
        for number in range(first // 2, self.told, 3):
            at = 10_000 + self.told
            if number % 2:
                events.append(debezium("d", before={"id": number}, at=at))
                self.expected.pop(number, None)
            else:
                events.append(debezium("u", {"id": number, "name": f"of {at}"}, at=at))
                self.expected[number] = f"of {at}"
        send(self._kafka, self._topic, [*events, *events[:EACH]])

    def follow(self, fault: str | None = None) -> subprocess.CompletedProcess[str]:
        """`flow consume --once` in a process of its own."""
        command = [
            sys.executable,
            "-m",
            "ematix_flow.cli",
            "consume",
            "--module",
            "tests.crash.changes",
            "mirror",
            "--once",
        ]
        environment = {**self._environment, **({"EMATIX_FLOW_FAULT": fault} if fault else {})}
        return subprocess.run(
            command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=400, check=False
        )

    def survives(self, *points: str) -> None:
        """Killed at one point after the other, it goes on."""
        for point in points:
            self.tell()
            killed = self.follow(point)
            assert killed.returncode == -signal.SIGKILL, (point, killed.stdout, killed.stderr)
        done = self.follow()
        assert done.returncode == 0, done.stderr


@pytest.mark.full
def test_a_mirror_in_postgres_may_be_killed_around_its_publish(
    kafka: Kafka, fresh_postgres: str, tmp_path: Path
) -> None:
    import psycopg

    mirrored = Mirrored(kafka, f"postgres|{fresh_postgres}|killed", tmp_path)
    mirrored.survives(*(("before_publish", "after_publish") if IS_FULL else ("after_publish",)))
    with psycopg.connect(fresh_postgres) as client:
        assert dict(client.execute("SELECT id, name FROM killed.customers").fetchall()) == mirrored.expected
        kept = client.execute("SELECT count(*), min(pipeline_name) FROM ematix_flow.cdc_idempotency").fetchone()
    assert kept == (mirrored.told, "mirror::killed.customers")


@pytest.mark.full("two minutes; a database is killed by default")
def test_a_mirror_in_delta_may_be_killed_between_its_gate_and_its_table(kafka: Kafka, tmp_path: Path) -> None:
    from deltalake import DeltaTable

    mirrored = Mirrored(kafka, f"delta|{tmp_path / 'lake'}|killed", tmp_path)
    mirrored.survives("after_gate")
    mirrored.tell()
    assert mirrored.follow().returncode == 0
    rows = DeltaTable(str(tmp_path / "lake" / "killed" / "customers")).to_pyarrow_table().to_pylist()
    assert {row["id"]: row["name"] for row in rows} == mirrored.expected
    gate = DeltaTable(str(tmp_path / "lake" / "killed" / "customers__cdc_idempotency")).to_pyarrow_table()
    assert gate.num_rows == 2 * EACH


pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
