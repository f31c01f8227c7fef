"""The broker and the database die and come back while a stream runs: it goes on by itself, nothing is lost or doubled."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.services import kafka, postgres
from tests.services.kafka import Kafka
from tests.streams.kafka_topics import new_topic, send

ROOT = Path(__file__).resolve().parents[2]


class Mortal:
    """A server that can be killed and started again as it was."""

    def __init__(self, pid: int, folder: Path) -> None:
        self.pid, self.folder = pid, folder
        self.command = Path(f"/proc/{pid}/cmdline").read_bytes().decode().rstrip("\0").split("\0")
        self.owner = Path(f"/proc/{pid}").stat()

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)  # a database does not start while its old process is still on the books

    def revive(self, stack: ExitStack) -> None:
        for _ in range(30):  # the children of a dead database keep it for a moment
            process = subprocess.Popen(
                self.command, cwd=self.folder, user=self.owner.st_uid, group=self.owner.st_gid, extra_groups=[],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            time.sleep(1)
            if process.poll() is None:
                break
        self.pid = process.pid
        stack.callback(process.wait)
        stack.callback(process.kill)


def until(reached: Callable[[], bool], said: Path | None = None, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < deadline, said.read_text() if said else ""
        time.sleep(0.2)


@pytest.fixture
def own() -> Iterator[tuple[Kafka, str, Path, ExitStack]]:
    """A broker and a database that nobody else uses."""
    with ExitStack() as stack:
        # The database runs as another user, whom the folders of the tests do not let in.
        homes = [Path(stack.enter_context(TemporaryDirectory(ignore_cleanup_errors=True))) for _ in range(2)]
        for home in homes:
            home.chmod(0o755)
        broker, database = kafka.start(homes[0]), postgres.start(homes[1])
        stack.callback(broker.stop)
        stack.callback(database.stop)
        yield Kafka.of(broker.url), database.url, homes[1], stack


@pytest.mark.full("two minutes; the kill matrix of consumers runs by default")
def test_a_stream_outlives_its_broker_and_its_database(own: tuple[Kafka, str, Path, ExitStack], tmp_path: Path) -> None:
    there, url, data, stack = own
    topic, sent, said = new_topic(there, partitions=2), 0, tmp_path / "said.txt"

    def arrived() -> None:
        until(lambda: len(found()) == sent, said)

    def tell(number: int = 200) -> None:
        nonlocal sent
        send(there, topic, [{"value": b'{"n": %d}' % n} for n in range(sent, sent + number)])
        sent += number

    def found() -> Counter[int]:
        import psycopg

        try:
            with psycopg.connect(url, connect_timeout=2) as client:
                if client.execute("SELECT to_regclass('crash.numbers')").fetchone() == (None,):
                    return Counter()
                return Counter(row[0] for row in client.execute("SELECT n FROM crash.numbers"))
        except psycopg.OperationalError:
            return Counter()

    tell()
    stream = _consuming(there, topic, url, tmp_path)
    stack.callback(stream.wait)
    stack.callback(stream.kill)
    try:
        arrived()
        database = Mortal(int((data / "data" / "postmaster.pid").read_text().split()[0]), data)
        database.kill()
        tell()
        time.sleep(3)
        database.revive(stack)
        arrived()
        broker = Mortal(there.pid, there.folder)
        broker.kill()
        time.sleep(3)
        broker.revive(stack)
        tell()
        arrived()
        assert stream.poll() is None
    finally:
        stream.send_signal(signal.SIGTERM)
    assert stream.wait(timeout=60) == 0, said.read_text()
    assert found() == Counter(range(sent))


def _consuming(there: Kafka, topic: str, url: str, folder: Path) -> subprocess.Popen[bytes]:
    environment = {
        **os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "CRASH_SOURCE": f"kafka|{there.open}|{topic}",
        "CRASH_TARGET": f"postgres|{url}|crash", "EMATIX_FLOW_CHECKPOINTS": str(folder / "checkpoints"),
        "EMATIX_FLOW_RUN_LOG_PATH": str(folder / "run_log.db"),
    }  # fmt: skip
    command = [
        sys.executable, "-m", "ematix_flow.cli", "consume", "--module", "tests.crash.streams", "numbers",
        "--restart-on-error", "--initial-backoff-ms", "300", "--max-backoff-ms", "2000",
    ]  # fmt: skip
    with (folder / "said.txt").open("w") as said:
        return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=said, stderr=said)
