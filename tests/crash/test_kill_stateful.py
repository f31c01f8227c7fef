"""kill -9 of a stream that remembers, at every point of its fold: every window and every pair comes out once, and is right."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.full import IS_FULL
from tests.services.kafka import Kafka
from tests.streams.kafka_topics import new_topic, send

ROOT = Path(__file__).resolve().parents[2]
POINTS = ("after_read", "before_fold", "after_fold", "before_publish", "after_publish", "after_checkpoint")
QUICK = ("after_fold",)
EACH = 500
FIRST = 1_700_000_000_000 - 1_700_000_000_000 % 100_000
"""A moment at which a window begins."""


class Stream:
    """One stream in a process of its own, fed with numbers."""

    def __init__(self, name: str, kafka: Kafka, url: str, folder: Path) -> None:
        self.name, self.kafka, self.url, self.sent = name, kafka, url, 0
        self.schema = f"crash_{name}"
        self.topics = [new_topic(kafka), new_topic(kafka)]
        self.environment = {
            "CRASH_SOURCE": "|".join([kafka.open, *self.topics]), "CRASH_TARGET": f"{url}|{self.schema}",
            "HOME": str(folder), "EMATIX_FLOW_RUN_LOG_PATH": str(folder / "run_log.db"),
            "EMATIX_FLOW_STAGE_DIR": str(folder / "stage"), "EMATIX_FLOW_CHECKPOINTS": str(folder / "checkpoints"),
        }  # fmt: skip
        with psycopg.connect(url) as client:
            client.execute(f"CREATE SCHEMA IF NOT EXISTS {self.schema}")

    def send(self) -> None:
        """The next numbers, on both topics; on the second one they are a little later."""
        numbers = range(self.sent, self.sent + EACH)
        for late, topic in enumerate(self.topics):
            messages = [{"number": n, "_event_ts": FIRST + n * 1000 + late * 700} for n in numbers]
            send(self.kafka, topic, [{"value": json.dumps(one)} for one in messages])
        self.sent += EACH

    def consume(self, *, fault: str | None = None) -> subprocess.CompletedProcess[str]:
        """`flow consume --once`."""
        environment = {**os.environ, **self.environment, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
        environment.pop("EMATIX_FLOW_FAULT", None)
        if fault:
            environment["EMATIX_FLOW_FAULT"] = fault
        words = ["consume", "--module", "tests.crash.stateful", self.name, "--once"]
        return subprocess.run(
            [sys.executable, "-m", "ematix_flow.cli", *words], env=environment, cwd=ROOT, capture_output=True, text=True,
            timeout=240, check=False,
        )  # fmt: skip

    def found(self) -> Counter[tuple[Any, ...]]:
        """What is in the target, by its own client."""
        table, columns = f"{self.schema}.{self.name}", "left_number, right_number"
        if self.name == "windows":
            columns = "(extract(epoch from window_start) * 1000)::bigint, n, total"
        with psycopg.connect(self.url) as client:
            if client.execute("SELECT to_regclass(%s)", [table]).fetchone() == (None,):
                return Counter()
            return Counter(client.execute(f"SELECT {columns} FROM {table}").fetchall())

    def expected(self) -> Counter[tuple[Any, ...]]:
        """Windows that are over, or every pair."""
        if self.name == "pairs":
            return Counter((n, n) for n in range(self.sent))
        over = range(0, self.sent - 100, 100)
        return Counter((FIRST + first * 1000, 100, sum(range(first, first + 100))) for first in over)


class Reader(threading.Thread):
    """Looks at the target all the while: nothing is ever there twice, or goes away."""

    def __init__(self, stream: Stream) -> None:
        super().__init__(daemon=True)
        self._stream, self._ended = stream, threading.Event()
        self.wrong: list[Any] = []
        self.looks = 0

    def run(self) -> None:
        before: Counter[tuple[Any, ...]] = Counter()
        while not self._ended.wait(0.3):
            now = self._stream.found()
            self.wrong += [item for item, times in now.items() if times > 1] + list(before - now)
            before, self.looks = now, self.looks + 1

    def end(self) -> None:
        """Look no more."""
        self._ended.set()
        self.join(30)


@pytest.mark.slow
@pytest.mark.proves("a stream with a window or a join keeps the word of its pair")
@pytest.mark.parametrize(
    "name", ["windows", pytest.param("pairs", marks=pytest.mark.full("a window is folded in the same way"))]
)
def test_a_stream_that_remembers_may_be_killed_at_any_point(
    name: str, kafka: Kafka, fresh_postgres: str, tmp_path: Path
) -> None:
    stream = Stream(name, kafka, fresh_postgres, tmp_path)
    reader = Reader(stream)
    reader.start()
    for point in POINTS if IS_FULL else QUICK:
        stream.send()
        killed = stream.consume(fault=point)
        assert killed.returncode == -signal.SIGKILL, (point, killed.stdout, killed.stderr)
        assert set(stream.found()) <= set(stream.expected()), point
    stream.send()
    done = stream.consume()
    assert done.returncode == 0, done.stderr
    assert stream.found() == stream.expected()
    if IS_FULL:
        again = stream.consume()
        assert again.returncode == 0, again.stderr
    reader.end()
    assert (reader.wrong, reader.looks > 5) == ([], True)
    assert stream.found() == stream.expected()
