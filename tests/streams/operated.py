"""What the tests of operating a stream share: streams over files and topics, runs that drain them, and their tables."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ematix_flow import ObjectStoreLocalConnection, SQLiteConnection, Target
from ematix_flow.cli.main import main
from ematix_flow.config.stream_connections import with_resolved_connections
from ematix_flow.declare.streams.options import StreamOptions, stream_from
from ematix_flow.declare.streams.spec import StreamSpec
from ematix_flow.run_log.sqlite import SqliteRunLog
from ematix_flow.streaming.runtime import runner
from tests.services.kafka import Kafka
from tests.services.server import free_port
from tests.streams.kafka_session import open_kafka
from tests.streams.kafka_topics import send

SECONDS = 90.0
GOOD = [{"value": json.dumps({"id": number, "amount": str(number)})} for number in (1, 2)]
"""Messages that `orders` takes."""
HEALED = """
[transform]
sql = "SELECT id, coalesce(try_cast(amount AS INT), -1) AS amount FROM source"
on_error = "dlq"
"""
"""A transform that takes every message which is JSON."""
ROOT = Path(__file__).resolve().parents[2]


def declared(**options: Any) -> StreamSpec:
    """A stream with its connections found."""
    return with_resolved_connections(stream_from(StreamOptions.parse(options, None), None))


def run(spec: StreamSpec, run_log: SqliteRunLog | None = None) -> Any:
    """Read what is there."""
    return runner.run_stream(spec, once=True, run_log=run_log)


def shop(folder: Path) -> SQLiteConnection:
    """A database file."""
    return SQLiteConnection("shop", path=str(folder / "shop.db"))


def watched(folder: Path, files: Mapping[str, tuple[Sequence[Mapping[str, Any]], int]]) -> ObjectStoreLocalConnection:
    """A folder with files of these rows, each last written at a moment; its prefix is `events`."""
    place = folder / "incoming" / "events"
    place.mkdir(parents=True)
    for name, (rows, at) in files.items():
        (place / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
        os.utime(place / name, (at, at))
    return ObjectStoreLocalConnection("incoming", path=str(folder / "incoming"), format="json_lines")


def tables(folder: Path) -> list[Target]:
    """One that is appended to, and one that is merged."""
    return [
        Target(connection=shop(folder), table=("main", "raw_events")),
        Target(connection=shop(folder), table=("main", "events"), mode="merge", keys=["id"], primary_key=["id"]),
    ]


def rows(folder: Path, sql: str) -> list[tuple[Any, ...]]:
    """What the database file holds."""
    with closing(sqlite3.connect(folder / "shop.db")) as connection:
        return sorted(tuple(row) for row in connection.execute(sql))


def eventually(found: Callable[[], Any], seconds: float = SECONDS) -> Any:
    """Wait until something is so."""
    deadline = time.monotonic() + seconds
    while True:
        answer = found()
        if answer:
            return answer
        assert time.monotonic() < deadline, "it does not come"
        time.sleep(0.2)


def here(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """The command line in this process, which has a session already: exit code and what was said."""
    capsys.readouterr()
    code = main(words)
    told = capsys.readouterr()
    return code, told.out, told.err


def flow(*words: str, folder: Path, **variables: str) -> subprocess.Popen[str]:
    """The command line in a process of its own."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]), **variables}
    return subprocess.Popen(
        [sys.executable, "-m", "ematix_flow.cli", *words], cwd=folder, env=env, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def ended(process: subprocess.Popen[str], seconds: float = SECONDS) -> tuple[int, str, str]:
    """Exit code and what was said."""
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"it does not end\n{out}\n{err}") from None
    return process.returncode, out, err


def metrics_at(port: int) -> dict[str, float]:
    """What a stream serves, by name, and name/part where a figure has parts; nothing while no server answers."""
    try:
        text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5).read().decode()
    except OSError:
        return {}
    found = re.finditer(r'^ematix_streaming_(\w+)\{(?:part="([^"]*)",)?pipeline="[^"]*"\} (\S+)$', text, re.MULTILINE)
    return {f"{one[1]}/{one[2]}" if one[2] else one[1]: float(one[3]) for one in found}


@contextmanager
def running(spec: StreamSpec, run_log: SqliteRunLog) -> Iterator[Callable[[], dict[str, float]]]:
    """The stream in a thread; its figures, until somebody has asked it to end."""
    port = free_port()
    thread = threading.Thread(target=lambda: runner.run_stream(spec, run_log=run_log, metrics_port=port), daemon=True)
    thread.start()
    yield lambda: metrics_at(port)
    thread.join(60)
    assert not thread.is_alive()


def people(*numbers: int) -> list[dict[str, Any]]:
    """Rows."""
    return [{"id": number, "name": f"n{number}"} for number in numbers]


def counted(folder: Path) -> tuple[int, int]:
    """Rows of the table that is appended to, and of the one that is merged."""
    return rows(folder, "SELECT count(*) FROM raw_events")[0][0], rows(folder, "SELECT count(*) FROM events")[0][0]


@dataclass(frozen=True)
class Events:
    """A topic into a table that is appended to and one that is merged."""

    kafka: Kafka
    topic: str
    folder: Path

    def arrive(self, *numbers: int, **fields: Any) -> None:
        """Messages come."""
        send(self.kafka, self.topic, [{"value": json.dumps(row), **fields} for row in people(*numbers)])

    def spec(self, **fields: Any) -> StreamSpec:
        """The stream; the fields are the connection's."""
        return declared(
            name="events", source=open_kafka(self.kafka, **fields), source_query=self.topic, targets=tables(self.folder)
        )

    def toml(self) -> str:
        """The stream as a file, with the first table alone."""
        return toml("events", self.topic, self.kafka.open, self.folder, "raw_events")


def orders(kafka: Kafka, topic: str, folder: Path, **options: Any) -> Any:
    """A topic into a table; amounts are numbers."""
    said = {
        "name": "orders", "source": open_kafka(kafka), "source_query": topic, "target": shop(folder),
        "target_table": ("main", "orders"), "transform_on_error": "dlq",
        "transform_sql": "SELECT id, CAST(amount AS INT) AS amount FROM source", **options,
    }  # fmt: skip
    return declared(**said)


def toml(name: str, topic: str, servers: str, folder: Path, table: str, more: str = "") -> str:
    """A topic into a table, as a file."""
    return f"""
name = "{name}"
source_query = "{topic}"

[source]
kind = "kafka"
bootstrap_servers = "{servers}"

[target]
kind = "sqlite"
path = "{folder / "shop.db"}"

[target.table]
schema = "main"
name = "{table}"
{more}
"""
