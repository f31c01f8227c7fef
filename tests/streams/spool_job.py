"""A stream from a broker into a folder, in a thread, or in a process that may be killed at any point.

Spark's part is played as Spark plays it: what is planned is written down before it is read, a batch that was not done is read
again, a commit is told when the next batch is planned. The target keeps each batch once, in a file that appears by one
rename, as an effectively-once target does; a batch that is read again must be the same.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ematix_flow.contract.stream import StreamRead
from ematix_flow.spool.reader import SpoolReader
from ematix_flow.spool.source import SpoolSource


@dataclass(frozen=True)
class Job:
    """What the process is told."""

    kind: str
    """`folder`, `rabbitmq` or `pubsub`."""
    connection: dict[str, Any]
    query: str
    checkpoint: str
    target: str
    rows: int = 0
    """Ends when so many are in the target; 0: runs until it is told to end."""
    max_rows: int | None = None
    options: dict[str, Any] = field(default_factory=dict)
    once: bool = False
    """One batch with all there is, as Spark's availableNow does it."""
    tells: bool = True
    """Whether the broker's process is told of commits at once, as the engine does."""
    die: str = ""
    """`after_plan`, `before_write`, `after_write` or `after_commit`, and behind a colon the batch from which on."""
    refuses: tuple[int, ...] = ()
    """Positions of messages that the stream does not want."""
    linger: float = 0.5
    """Seconds between the last row and the end."""

    def dump(self) -> str:
        return json.dumps(asdict(self))


def source_of(job: Job) -> SpoolSource:
    """The stream source under test."""
    if job.kind == "folder":
        from tests.streams.folder_queue import FolderSource

        return FolderSource(SimpleNamespace(name="folders", kind="folder", **job.connection))
    from ematix_flow.backends.catalog import backend_for
    from ematix_flow.declare.connections import PubSubConnection, RabbitMQConnection

    made = {"rabbitmq": RabbitMQConnection, "pubsub": PubSubConnection}[job.kind]("broker", **job.connection)
    maker = backend_for(made).stream_source
    assert maker is not None
    source = maker(made)
    assert isinstance(source, SpoolSource)
    return source


class Target:
    """One file for each batch that has rows."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def write(self, number: int, rows: list[dict[str, Any]]) -> None:
        path, draft = self.folder / f"{number}.json", self.folder / f"{number}.draft"
        if path.exists() and json.loads(path.read_text()) != rows:
            (self.folder / "different").write_text(str(number))
        if rows:
            draft.write_text(json.dumps(rows))
            draft.rename(path)

    def rows(self) -> list[dict[str, Any]]:
        files = sorted(self.folder.glob("*.json"), key=lambda path: int(path.stem))
        return [row for path in files for row in json.loads(path.read_text())]

    @property
    def is_steady(self) -> bool:
        """Whether every batch that was read again was the same."""
        return not (self.folder / "different").exists()

    def largest(self) -> int:
        return max((len(json.loads(path.read_text())) for path in self.folder.glob("*.json")), default=0)


def as_row(told: dict[str, Any]) -> dict[str, Any]:
    told = {**told, "value": told["value"].decode(), "key": told["key"].decode() if told["key"] else None}
    told["headers"] = {item["key"]: (item["value"] or b"").decode() for item in told["headers"] or ()}
    told["timestamp"] = str(told["timestamp"]) if told["timestamp"] else None
    return {name: value for name, value in told.items() if value is not None}


class Log:
    """Numbered entries that appear whole."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def last(self) -> int:
        return max((int(path.name) for path in self.folder.glob("[0-9]*")), default=-1)

    def write(self, number: int, told: dict[str, int]) -> None:
        draft = self.folder / f".{number}"
        draft.write_text(json.dumps(told))
        draft.rename(self.folder / str(number))

    def read(self, number: int) -> dict[str, int]:
        found: dict[str, int] = json.loads((self.folder / str(number)).read_text())
        return found


class Stream:
    """One life of a query."""

    def __init__(self, job: Job) -> None:
        self.job, self.source, self.target = job, source_of(job), Target(Path(job.target))
        self.read = StreamRead("job", job.query, job.checkpoint, max_rows=job.max_rows, options=job.options)
        self.source.check(self.read)
        self.reader = SpoolReader(self.source.settings(self.read))
        self.offsets, self.commits = (Log(Path(job.checkpoint) / "log" / name) for name in ("offsets", "commits"))

    def run(self, is_over: Callable[[], bool]) -> None:
        everything = self.reader.latestOffset() if self.job.once else None
        start, ends = self._begin(), 0.0
        while not is_over() and not (ends and time.monotonic() > ends):
            end = everything or self.reader.latestOffset()
            if end != start:
                start = self._batch(start, end)
            else:
                time.sleep(0.02)
            if self.job.once:
                break
            if self.job.rows and not ends and len(self.target.rows()) >= self.job.rows:
                ends = time.monotonic() + self.job.linger

    def _begin(self) -> dict[str, int]:
        """Where to go on; what was planned and not done is done first."""
        last = self.offsets.last()
        if last < 0:
            return self.reader.initialOffset()
        end = self.offsets.read(last)
        assert not self.reader.partitions(end, end)
        if self.commits.last() < last:
            self._publish(last, self.offsets.read(last - 1) if last else self.reader.initialOffset(), end)
        return end

    def _batch(self, start: dict[str, int], end: dict[str, int]) -> dict[str, int]:
        number = self.offsets.last() + 1
        self.offsets.write(number, end)
        self._die("after_plan", number)
        if number:
            self.reader.commit(start)
        self._publish(number, start, end)
        return end

    def _publish(self, number: int, start: dict[str, int], end: dict[str, int]) -> None:
        parts = self.reader.partitions(start, end)
        rows = [as_row(row) for part in parts for batch in self.reader.read(part) for row in batch.to_pylist()]
        if rows:
            self.source.refuse(self.read, [row["offset"] for row in rows if row["offset"] in self.job.refuses])
            self._die("before_write", number)
        self.target.write(number, rows)
        if rows:
            self._die("after_write", number)
        self.commits.write(number, {})
        if rows:
            self._die("after_commit", number)
        if self.job.tells:
            self.source.committed(self.read, end)

    def _die(self, point: str, number: int) -> None:
        wanted, _, first = self.job.die.partition(":")
        if point == wanted and number >= int(first or 0):
            os.kill(os.getpid(), signal.SIGKILL)


def carry(job: Job, is_over: Callable[[], bool] = lambda: False) -> None:
    """Run the stream to its end."""
    stream = Stream(job)
    try:
        stream.run(is_over)
    finally:
        stream.reader.stop()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    carry(Job(**json.loads(sys.argv[1])))
