"""kill -9 of a consumer at each named point, one after the other: while a reader looks on, no row is lost or doubled."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.full import IS_FULL

ROOT = Path(__file__).resolve().parents[2]
POINTS = ("after_read", "mid_stage", "before_publish", "after_publish", "after_checkpoint")
ROUTES = ("kafka-postgres", "files-delta", "kafka-delta", "kafka-kafka", "rabbitmq-postgres")
BY_DEFAULT = ("kafka-postgres",)
EACH = 500
MANY_LOOKS = 5  # while one consumer starts, works and dies, which takes seconds
QUICK = ("after_publish",)  # where most can go wrong; each point costs a process


class Route:
    """One source and one target: how numbers get in, and which of them came out."""

    def __init__(self, source: str, target: str, folder: Path, request: pytest.FixtureRequest) -> None:
        self.folder, self.sent = folder, 0
        self._left: Callable[[], int] = lambda: 0
        """What the source's broker thinks that nobody has done, as far as it thinks at all."""
        self.source, self._send = getattr(self, f"_from_{source}")(request)
        self.target, self._read = getattr(self, f"_to_{target}")(request)
        self.environment = {
            "CRASH_SOURCE": self.source, "CRASH_TARGET": self.target, "HOME": str(folder),
            "EMATIX_FLOW_RUN_LOG_PATH": str(folder / "run_log.db"), "EMATIX_FLOW_STAGE_DIR": str(folder / "stage"),
            "EMATIX_FLOW_CHECKPOINTS": str(folder / "checkpoints"),
        }  # fmt: skip

    def send(self) -> None:
        """The next numbers."""
        self._send(range(self.sent, self.sent + EACH))
        self.sent += EACH

    def found(self) -> Counter[int]:
        """Every number in the target, by its own client."""
        return Counter(self._read())

    def consume(self, *, fault: str | None = None) -> subprocess.CompletedProcess[str]:
        """`flow consume --once` in a process of its own."""
        environment = {**os.environ, **self.environment, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
        environment.pop("EMATIX_FLOW_FAULT", None)
        if fault:
            environment["EMATIX_FLOW_FAULT"] = fault
        command = [
            sys.executable,
            "-m",
            "ematix_flow.cli",
            "consume",
            "--module",
            "tests.crash.streams",
            "numbers",
            "--once",
        ]
        return subprocess.run(
            command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False
        )

    def wait_for_acknowledgements(self) -> None:
        """Tools see all of it as read (Kafka's group), and nothing is delivered again (RabbitMQ, whose unacknowledged
        messages wait once more as soon as their consumer is gone)."""
        deadline = time.monotonic() + 10
        while self._left() and time.monotonic() < deadline:
            time.sleep(0.2)
        assert self._left() == 0

    def _from_kafka(self, request: pytest.FixtureRequest) -> tuple[str, Callable[[range], None]]:
        from tests.streams.kafka_topics import group_offsets, new_topic, send

        kafka = request.getfixturevalue("kafka")
        topic = new_topic(kafka, partitions=2)
        parts = (f"{topic}-0", f"{topic}-1")
        self._left = lambda: self.sent - sum(group_offsets(kafka, "crash").get(part, 0) for part in parts)
        return f"kafka|{kafka.open}|{topic}", lambda numbers: send(
            kafka, topic, [{"value": b'{"n": %d}' % n, "partition": n % 2} for n in numbers]
        )

    def _from_rabbitmq(self, request: pytest.FixtureRequest) -> tuple[str, Callable[[range], None]]:
        from tests.streams.rabbit_queues import depth, new_queue, publish

        url = request.getfixturevalue("rabbitmq_url")
        queue = new_queue(url)
        self._left = lambda: depth(url, queue)
        return f"rabbitmq|{url}|{queue}", lambda numbers: publish(url, queue, [f'{{"n": {n}}}' for n in numbers])

    def _from_files(self, _: pytest.FixtureRequest) -> tuple[str, Callable[[range], None]]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        folder = self.folder / "incoming" / "numbers"
        folder.mkdir(parents=True)

        def send(numbers: range) -> None:
            for part in range(2):
                name = folder / f"{numbers.start}-{part}.parquet"
                pq.write_table(pa.table({"n": pa.array(list(numbers)[part::2], pa.int64())}), f"{name}.new")
                Path(f"{name}.new").rename(name)

        return f"files|{self.folder / 'incoming'}|numbers", send

    def _to_postgres(self, request: pytest.FixtureRequest) -> tuple[str, Callable[[], list[int]]]:
        import psycopg

        url, schema = request.getfixturevalue("fresh_postgres"), f"crash_{self.folder.name.replace('-', '_')[-20:]}"

        def read() -> list[int]:
            with psycopg.connect(url) as client:
                if client.execute("SELECT to_regclass(%s)", [f"{schema}.numbers"]).fetchone() == (None,):
                    return []
                return [row[0] for row in client.execute(f"SELECT n FROM {schema}.numbers")]

        return f"postgres|{url}|{schema}", read

    def _to_delta(self, _: pytest.FixtureRequest) -> tuple[str, Callable[[], list[int]]]:
        from deltalake import DeltaTable

        path = str(self.folder / "lake" / "crash" / "numbers")

        def read() -> list[int]:
            if not DeltaTable.is_deltatable(path):
                return []
            return list(DeltaTable(path).to_pyarrow_table(columns=["n"]).column("n").to_pylist())

        return f"delta|{self.folder / 'lake'}|crash", read

    def _to_kafka(self, request: pytest.FixtureRequest) -> tuple[str, Callable[[], list[int]]]:
        import json

        from tests.streams.kafka_topics import everything, new_topic

        kafka = request.getfixturevalue("kafka")
        topic = new_topic(kafka)
        return f"kafka|{kafka.open}|{topic}", lambda: [json.loads(one.value())["n"] for one in everything(kafka, topic)]


class Reader(threading.Thread):
    """Looks at the target all the while, by its own client."""

    def __init__(self, route: Route) -> None:
        super().__init__(daemon=True)
        self._route, self._ended = route, threading.Event()
        self.looks = 0
        self.wrong: list[tuple[int, int | str]] = []
        """What it ever saw twice, or saw and then no more."""
        self.failure: BaseException | None = None

    def run(self) -> None:
        before: Counter[int] = Counter()
        try:
            while not self._ended.wait(0.2):
                now = self._route.found()
                self.wrong.extend((n, times) for n, times in now.items() if times > 1)
                self.wrong.extend((n, "gone") for n in before - now)
                before, self.looks = now, self.looks + 1
        except BaseException as exc:
            self.failure = exc

    def end(self) -> None:
        """Look no more."""
        self._ended.set()
        self.join(30)

    def saw_nothing_wrong(self) -> None:
        """A reader that could not look proves nothing."""
        if self.failure is not None:
            raise self.failure
        assert not self.is_alive()
        assert self.wrong == []


@contextmanager
def looked_on(route: Route) -> Iterator[Reader]:
    """A reader at the target while the block runs, which saw nothing wrong."""
    reader = Reader(route)
    reader.start()
    try:
        yield reader
    finally:
        reader.end()
    reader.saw_nothing_wrong()


_WAITS = pytest.mark.full("a minute and a half; one of the five ways is gone by default")


@pytest.mark.slow
@pytest.mark.parametrize("way", [pytest.param(way, marks=() if way in BY_DEFAULT else _WAITS) for way in ROUTES])
def test_a_consumer_killed_at_any_point_goes_on_where_it_was(
    way: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    route = Route(*way.split("-"), tmp_path, request)
    with looked_on(route) as reader:
        for point in POINTS if IS_FULL else QUICK:
            route.send()
            looks = reader.looks
            killed = route.consume(fault=point)
            assert killed.returncode == -signal.SIGKILL, (point, killed.stdout, killed.stderr)
            assert set(route.found()) <= set(range(route.sent)), point
            assert reader.looks >= looks + MANY_LOOKS, (point, reader.failure)
        route.send()
        done = route.consume()
        assert done.returncode == 0, done.stderr
        assert route.found() == Counter(range(route.sent))
        time.sleep(0.5)
    route.wait_for_acknowledgements()
    again = route.consume()
    assert again.returncode == 0, again.stderr
    assert route.found() == Counter(range(route.sent))
    route.wait_for_acknowledgements()
