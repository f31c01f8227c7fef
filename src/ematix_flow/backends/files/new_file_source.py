"""New files of a watched folder as a Spark data source: their names, each exactly once, in a repeatable order.

It runs in a Python process that Spark starts. The names returned so far are recorded in a log beside the checkpoint,
one entry per batch of names, written before the batch's offset is returned to Spark.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from ematix_flow.backends.files.folder_listing import NewFile, WatchedFolder
from ematix_flow.dataplane.spark_tasks import stream_source
from ematix_flow.dataplane.task_errors import to_carried_error
from ematix_flow.foundation.errors import FlowError, RunFailed
from ematix_flow.storage.paths import LakePath, read_text_if_exists, remove, write_atomically

SCHEMA = "name STRING"
_BATCH = "batch"
_ALL = "upto"
_EVERY = 200  # entries, after which the older ones are merged into one


@dataclass(frozen=True)
class NewFileSettings:
    """Settings of a watched folder; pickled into Spark's Python process."""

    folder: WatchedFolder
    ledger: LakePath
    is_new: bool
    """Whether the stream has no checkpoint yet."""
    since: float | None = None
    """Time in epoch seconds; files older than this count as read."""
    max_files: int = 1000
    """Most files of one batch; no limit where a drain without `max_rows` reads everything at once."""
    max_rows: int | None = None
    """Most rows of one batch, unless a single file has more; files with an unknown row count count as this many."""
    drains: bool = False
    run: str = ""
    """Id of the drain; with `max_rows` it takes several queries, and ends with the files that the first one found."""
    planned: int = 0
    """The last entry for which Spark has planned a micro-batch."""


@dataclass(frozen=True)
class DrainGoal:
    """The files that a drain found when it began, stored beside the log of names."""

    folder: LakePath
    run: str

    def load(self) -> list[NewFile] | None:
        """Return the files, None where this run has recorded none yet."""
        kept = json.loads(read_text_if_exists(self._path) or "{}")
        return [NewFile(*item) for item in kept["files"]] if kept.get("run") == self.run else None

    def save(self, files: Sequence[NewFile]) -> None:
        """Write the files; called once per run."""
        entries = [(item.name, item.size, item.modified) for item in files]
        write_atomically(self._path, json.dumps({"run": self.run, "files": entries}))

    def left(self, seen: Container[str]) -> list[NewFile]:
        """Return the files that were not returned to Spark yet."""
        return [item for item in self.load() or () if item.name not in seen]

    @property
    def _path(self) -> LakePath:
        return self.folder / "goal.json"


@dataclass
class FileOffsetLog:
    """The log of names returned to Spark; entry 0 lists the files that existed before the stream's start."""

    folder: LakePath
    seen: set[str] = field(default_factory=set)
    last: int = -1

    def load(self) -> None:
        """Read the log from its folder."""
        for path in self._together():
            self.seen |= set(json.loads(path.read_text(encoding="utf-8")))
        for number in self._numbers():
            self.seen |= set(self.names(number))
            self.last = max(self.last, number)

    def clear(self) -> None:
        """Delete all entries."""
        remove(self.folder)
        self.seen, self.last = set(), -1

    def add(self, names: Sequence[str]) -> None:
        """Append an entry; it is durable when this returns."""
        self.last += 1
        write_atomically(self._path(self.last), json.dumps(list(names)))
        self.seen |= set(names)
        if self.last and self.last % _EVERY == 0:
            self._compact(self.last - _EVERY)

    def names(self, number: int) -> list[str]:
        """Return the names of one entry; raise RunFailed where it is missing."""
        try:
            names: list[str] = json.loads(self._path(number).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            raise RunFailed(
                f"the list of files of batch {number} is gone from {self.folder}",
                hint="restore that folder, or begin anew: flow stream rewind NAME --to …",
            ) from None
        return names

    def _compact(self, number: int) -> None:
        """Merge the entries that Spark can no longer request into one file."""
        old = [item for item in self._numbers() if item <= number]
        kept = self._together()
        names = [name for path in kept for name in json.loads(path.read_text(encoding="utf-8"))]
        names += [name for item in old for name in self.names(item)]
        upto = self.folder / f"{_ALL}-{number:012}.json"
        write_atomically(upto, json.dumps(names))
        for path in (*(self._path(item) for item in old), *kept):
            if path.name != upto.name:
                path.unlink(missing_ok=True)

    def _together(self) -> list[LakePath]:
        return sorted(self.folder.glob(f"{_ALL}-*.json"), key=lambda path: path.name)

    def _numbers(self) -> list[int]:
        return sorted(int(path.stem) for path in self.folder.glob("*.json") if path.stem.isdigit())

    def _path(self, number: int) -> LakePath:
        return self.folder / f"{number:012}.json"


class FileNames(InputPartition):
    """The names of one batch."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = list(names)


class NewFilesReader(DataSourceStreamReader):
    """A reader that lists the folder whenever Spark requests the latest offset."""

    def __init__(self, watched: NewFileSettings) -> None:
        self._watched = watched
        self._ledger: FileOffsetLog | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_watched": self._watched, "_ledger": None}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  Spark's own names
        """Return the offset after the files that precede the stream's start."""
        return {_BATCH: 0}

    def latestOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return the number of the last entry, after writing an entry for new files."""
        try:
            ledger, watched = self._opened(), self._watched
            if watched.drains and ledger.last > max(watched.planned, 0):  # one query drains one entry
                return {_BATCH: ledger.last}
            new = self._new_files(ledger)
            if new:
                some = new if watched.drains and watched.max_rows is None else self._bounded(new)
                ledger.add([item.name for item in some])
            return {_BATCH: ledger.last}
        except Exception as exc:
            raise to_carried_error(exc, _translate) from exc

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the names between two offsets as at most one partition; the same names every time."""
        try:
            ledger = self._opened()
            numbers = range(int(start[_BATCH]) + 1, int(end[_BATCH]) + 1)
            names = [name for number in numbers for name in ledger.names(number)]
        except Exception as exc:
            raise to_carried_error(exc, _translate) from exc
        return [FileNames(names)] if names else []

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """Yield the names of a partition."""
        if isinstance(partition, FileNames):
            yield from ((name,) for name in partition.names)

    def _opened(self) -> FileOffsetLog:
        if self._ledger is None:
            ledger = FileOffsetLog(self._watched.ledger)
            if self._watched.is_new:
                ledger.clear()
            else:
                ledger.load()
            if ledger.last < 0:
                ledger.add([item.name for item in self._files_to_skip()])
            self._ledger = ledger
        return self._ledger

    def _new_files(self, ledger: FileOffsetLog) -> Sequence[NewFile]:
        """Return the new files; for a drain in several queries, those that were new when it began."""
        watched = self._watched
        if not watched.drains or watched.max_rows is None:
            return watched.folder.arrived(ledger.seen, wait=watched.drains)
        goal = DrainGoal(watched.ledger, watched.run)
        if goal.load() is None:
            goal.save(watched.folder.arrived(ledger.seen, wait=True))
        return goal.left(ledger.seen)

    def _bounded(self, new: Sequence[NewFile]) -> Sequence[NewFile]:
        """Return as many of the oldest files as one batch may contain."""
        some, most = new[: self._watched.max_files], self._watched.max_rows
        if most is None:
            return some
        total = 0
        for number, item in enumerate(some):
            rows = self._watched.folder.rows_in(item)
            total += most if rows is None else rows
            if number and total > most:
                return some[:number]
        return some

    def _files_to_skip(self) -> list[NewFile]:
        since = self._watched.since
        return [item for item in self._watched.folder.present() if item.modified < since] if since is not None else []


def data_source(name: str, watched: NewFileSettings) -> type[DataSource]:
    """Return the data source of one stream under this name."""
    return stream_source(name, SCHEMA, partial(NewFilesReader, watched))


def _translate(exc: Exception) -> FlowError:
    return RunFailed(f"the watched folder cannot be looked at: {exc}", hint="check that it is there and can be read")
