"""New files of a watched folder as a source of Spark's: their names, each exactly once, in an order that can be repeated.

It runs in a Python process of Spark's own. What was given out is kept in a ledger beside the checkpoint, one entry for
each batch of names, written before Spark hears of it.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from ematix_flow.backends.files.watching import Arrived, Folder
from ematix_flow.families.carry import carried_error
from ematix_flow.families.lake.place import LakePath, read_if_there, remove, write_atomically
from ematix_flow.foundation.errors import FlowError, RunFailed

SCHEMA = "name STRING"
_BATCH = "batch"
_ALL = "upto"
_EVERY = 200  # entries, after which the older ones become one


@dataclass(frozen=True)
class Watched:
    """What is watched; it travels to Spark's process as it is."""

    folder: Folder
    ledger: LakePath
    is_new: bool
    """Whether the stream has no checkpoint yet."""
    since: float | None = None
    """Files that are older than this moment count as read."""
    most: int = 1000
    """Files of one batch; without a limit where everything that is there is drained at once."""
    max_rows: int | None = None
    """Rows of one batch, unless its only file has more; one whose rows cannot be counted is a batch by itself."""
    drains: bool = False
    run: str = ""
    """Whose drain it is: one that is bounded takes several queries, and ends with the files that the first one found."""
    planned: int = 0
    """The last entry that Spark has planned."""


@dataclass(frozen=True)
class Goal:
    """The files that a drain found when it began, beside the ledger."""

    folder: LakePath
    run: str

    def load(self) -> list[Arrived] | None:
        """None where this run has found nothing yet."""
        kept = json.loads(read_if_there(self._path) or "{}")
        return [Arrived(*item) for item in kept["files"]] if kept.get("run") == self.run else None

    def save(self, files: Sequence[Arrived]) -> None:
        """Once for each run."""
        found = [(item.name, item.size, item.modified) for item in files]
        write_atomically(self._path, json.dumps({"run": self.run, "files": found}))

    def left(self, seen: Container[str]) -> list[Arrived]:
        """Those that were not given out yet."""
        return [item for item in self.load() or () if item.name not in seen]

    @property
    def _path(self) -> LakePath:
        return self.folder / "goal.json"


@dataclass
class Ledger:
    """The names that were given out: entry 0 are those that were there before and are not wanted."""

    folder: LakePath
    seen: set[str] = field(default_factory=set)
    last: int = -1

    def load(self) -> None:
        """Read it back."""
        for path in self._together():
            self.seen |= set(json.loads(path.read_text(encoding="utf-8")))
        for number in self._numbers():
            self.seen |= set(self.names(number))
            self.last = max(self.last, number)

    def clear(self) -> None:
        """Begin anew."""
        remove(self.folder)
        self.seen, self.last = set(), -1

    def add(self, names: Sequence[str]) -> None:
        """One more entry; it lasts when this returns."""
        self.last += 1
        write_atomically(self._path(self.last), json.dumps(list(names)))
        self.seen |= set(names)
        if self.last and self.last % _EVERY == 0:
            self._compact(self.last - _EVERY)

    def names(self, number: int) -> list[str]:
        """The names of one entry."""
        try:
            found: list[str] = json.loads(self._path(number).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            raise RunFailed(
                f"the list of files of batch {number} is gone from {self.folder}",
                hint="restore that folder, or begin anew: flow stream rewind NAME --to …",
            ) from None
        return found

    def _compact(self, number: int) -> None:
        """Entries that Spark cannot ask for any more, in one file."""
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


class Names(InputPartition):
    """Names of one batch."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = list(names)


class ArrivalsReader(DataSourceStreamReader):
    """Looks at the folder whenever Spark asks how far it has come."""

    def __init__(self, watched: Watched) -> None:
        self._watched = watched
        self._ledger: Ledger | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_watched": self._watched, "_ledger": None}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  Spark's own names
        """Behind what is not wanted."""
        return {_BATCH: 0}

    def latestOffset(self) -> dict[str, Any]:  # noqa: N802
        """The last entry, after whatever is new has become one."""
        try:
            ledger, watched = self._opened(), self._watched
            if watched.drains and ledger.last > max(watched.planned, 0):  # one query drains one entry
                return {_BATCH: ledger.last}
            new = self._wanted(ledger)
            if new:
                some = new if watched.drains and watched.max_rows is None else self._bounded(new)
                ledger.add([item.name for item in some])
            return {_BATCH: ledger.last}
        except Exception as exc:
            raise carried_error(exc, _translate) from exc

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The names between two offsets, the same ones every time."""
        try:
            ledger = self._opened()
            numbers = range(int(start[_BATCH]) + 1, int(end[_BATCH]) + 1)
            names = [name for number in numbers for name in ledger.names(number)]
        except Exception as exc:
            raise carried_error(exc, _translate) from exc
        return [Names(names)] if names else []

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """The names of a partition."""
        if isinstance(partition, Names):
            yield from ((name,) for name in partition.names)

    def _opened(self) -> Ledger:
        if self._ledger is None:
            ledger = Ledger(self._watched.ledger)
            if self._watched.is_new:
                ledger.clear()
            else:
                ledger.load()
            if ledger.last < 0:
                ledger.add([item.name for item in self._unwanted()])
            self._ledger = ledger
        return self._ledger

    def _wanted(self, ledger: Ledger) -> Sequence[Arrived]:
        """What is new; of a drain in several queries, what was new when it began."""
        watched = self._watched
        if not watched.drains or watched.max_rows is None:
            return watched.folder.arrived(ledger.seen, wait=watched.drains)
        goal = Goal(watched.ledger, watched.run)
        if goal.load() is None:
            goal.save(watched.folder.arrived(ledger.seen, wait=True))
        return goal.left(ledger.seen)

    def _bounded(self, new: Sequence[Arrived]) -> Sequence[Arrived]:
        """As many of the oldest as one batch may have."""
        some, most = new[: self._watched.most], self._watched.max_rows
        if most is None:
            return some
        total = 0
        for number, item in enumerate(some):
            rows = self._watched.folder.rows_in(item)
            total += most if rows is None else rows
            if number and total > most:
                return some[:number]
        return some

    def _unwanted(self) -> list[Arrived]:
        since = self._watched.since
        return [item for item in self._watched.folder.present() if item.modified < since] if since is not None else []


def data_source(name: str, watched: Watched) -> type[DataSource]:
    """A class for this one folder: Spark takes classes, and options would show secrets in its plans."""

    class ArrivalsDataSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return name

        def schema(self) -> str:
            return SCHEMA

        def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802
            return ArrivalsReader(watched)

    return ArrivalsDataSource


def _translate(exc: Exception) -> FlowError:
    return RunFailed(f"the watched folder cannot be looked at: {exc}", hint="check that it is there and can be read")
