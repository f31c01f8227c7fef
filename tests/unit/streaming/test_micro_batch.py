"""The steps of a micro-batch, with targets in memory: their order, and what becomes of targets that fail."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from ematix_flow.contract.write import Commit, Counts, WriteResult
from ematix_flow.declare.streams.spec import DLQ, BadRows, StreamSpec
from ematix_flow.foundation.errors import ConnectionFailed, DataError, FlowError
from ematix_flow.streaming.dlq.commit_coverage import EVERYTHING, NOTHING
from ematix_flow.streaming.dlq.letters import BatchLetters, FailedRows
from ematix_flow.streaming.runtime.backlog import Backlog
from ematix_flow.streaming.runtime.batch_barrier import BatchBarrier
from ematix_flow.streaming.runtime.decoding import DecodedRows
from ematix_flow.streaming.runtime.micro_batch import MicroBatch
from ematix_flow.streaming.runtime.targets import FittedRows


class Rows:
    """A dataframe of which only the columns matter."""

    columns = ("n",)

    def persist(self) -> Rows:
        return self

    def unpersist(self) -> None:
        pass

    def count(self) -> int:
        return 5


@dataclass
class Messages:
    """A decoder that knows the schema after some lessons."""

    log: list[str]
    unknown: int = 0
    columns: None = None

    def decode(self, frame: Any, *, watched: bool) -> Any:
        self.log.append("decode")
        return Decoded(frame, is_watched=watched, owner=self)


@dataclass(frozen=True)
class Decoded(DecodedRows):
    owner: Any = None

    def has_unknown_messages(self, *, were_read: bool) -> bool:
        return self.is_watched and self.owner.unknown > 0

    def learn(self) -> bool:
        self.owner.unknown -= 1
        self.owner.log.append("learn")
        return True


@dataclass
class Table:
    """A target in memory, which writes down what it is asked to do."""

    name: str
    log: list[str]
    broken: str | None = None
    """The step that fails."""
    refuses: int = 0
    """How often it refuses a row."""
    has_stage: bool = True
    known: dict[int, WriteResult] = field(default_factory=dict)

    def fit(self, rows: Any, open_until: ExitStack, *, splits: bool) -> FittedRows:
        return FittedRows(rows, rows)

    def begin(self, number: int) -> Write:
        self.did("begin")
        return Write(self, number, self.known.get(number))

    def without_refused(self, number: int, fitted: FittedRows, open_until: ExitStack) -> FittedRows:
        self.did("search")
        return replace(fitted, failed=(FailedRows(fitted.rows, "wrong", "write", self.name),))

    def figures(self, number: int, result: WriteResult) -> dict[str, int]:
        return {"figures": 1}

    def did(self, step: str) -> None:
        self.log.append(f"{step} {self.name}")
        if step == self.broken:
            raise ConnectionFailed(f"{self.name} is down")
        if step == "publish" and self.refuses:
            self.refuses -= 1
            raise DataError("a row is refused")


@dataclass(frozen=True)
class Write:
    table: Table
    number: int
    recovered: WriteResult | None

    def coverage(self) -> Any:
        return EVERYTHING if self.recovered is not None else NOTHING

    def stage(self, rows: Any) -> Write:
        self.table.did("stage")
        return self

    def publish(self) -> WriteResult:
        self.table.did("publish")
        result = WriteResult("run", Commit(self.table.name, self.number + 1), Counts(read=5))
        self.table.known[self.number] = result
        return result

    def settle(self, result: WriteResult) -> None:
        self.table.did("settle")


@dataclass
class Letters:
    """The store step of dead letters, without records."""

    log: list[str]
    retried: int | None = None

    def is_retry(self, number: int) -> bool:
        return number == self.retried

    def store_waiting(self, letters: BatchLetters, coverage: Any = None, *, target: str | None = None) -> BatchLetters:
        covered = sorted(name for name, item in (coverage or {}).items() if item == EVERYTHING)
        self.log.append(" ".join(["letters", *(str(item.target) for item in letters.waiting), *covered]))
        done = (*letters.stored, *letters.waiting)
        return replace(letters, waiting=(), stored=done, count=len(done))


class Kept(Backlog):
    """A backlog in memory."""

    def __init__(self, folder: Path, log: list[str]) -> None:
        super().__init__(folder)
        object.__setattr__(self, "log", log)
        object.__setattr__(self, "kept", [])

    def waiting(self, target: Any) -> list[int]:
        return [number for name, number in self.kept if name == target.name]  # type: ignore[attr-defined]

    def add(self, target: Any, number: int, rows: Any, error: FlowError) -> None:
        self.log.append(f"keep {target.name}")  # type: ignore[attr-defined]
        self.kept.append((target.name, number))  # type: ignore[attr-defined]

    def read(self, target: Any, number: int) -> Any:
        return Rows()

    def done(self, target: Any, number: int) -> None:
        self.kept.remove((target.name, number))  # type: ignore[attr-defined]


class Stream:
    """A micro-batch function over targets in memory, and what it did in which order."""

    def __init__(self, folder: Path, *, unknown: int = 0, is_tolerant: bool = False, letters: bool = False,
                 retried: int | None = None, deferred: bool = False) -> None:  # fmt: skip
        self.log: list[str] = []
        self.one, self.two = Table("one", self.log), Table("two", self.log)
        bad = BadRows(policy=DLQ) if letters else BadRows()
        spec: Any = StreamSpec("s", (), (self.one, self.two), bad_rows=bad, continue_on_target_failure=is_tolerant)  # type: ignore[arg-type]
        store: Any = Letters(self.log, retried) if letters else None
        decoders: Any = [Messages(self.log, unknown)]
        self.work = MicroBatch(
            spec=spec, decoders=decoders, transform=None, targets=[self.one, self.two], dead_letters=store,
            backlog=Kept(folder, self.log), barrier=BatchBarrier(), still_ours=lambda: self.log.append("ours"),
            defers_letters=deferred,
        )  # fmt: skip

    def __call__(self, number: int = 0) -> list[str]:
        self.log.clear()
        self.work(Rows(), number)  # type: ignore[arg-type]
        return list(self.log)


WRITTEN = ["begin one", "stage one", "begin two", "stage two"]
PUBLISHED = ["ours", "publish one", "settle one", "ours", "publish two", "settle two"]


def test_all_targets_are_staged_before_one_is_published(tmp_path: Path) -> None:
    stream = Stream(tmp_path)
    assert stream() == ["ours", "decode", *WRITTEN, *PUBLISHED]
    assert (stream.work.counts.written, stream.work.counts.more) == (10, {"figures": 2})


def test_messages_that_were_not_decoded_are_learned_before_anything_is_published(tmp_path: Path) -> None:
    stream = Stream(tmp_path, unknown=2)
    assert stream() == ["ours", *["decode", *WRITTEN, "learn"] * 2, "decode", *WRITTEN, *PUBLISHED]


@pytest.mark.parametrize("deferred", [False, True])
def test_letters_are_stored_before_the_stage_or_between_stage_and_publish(tmp_path: Path, deferred: bool) -> None:
    stream, store = Stream(tmp_path, letters=True, deferred=deferred), ["ours", "letters"]
    before, after = ([], store) if deferred else (store, [])
    assert stream() == ["ours", "decode", *before, *WRITTEN, *after, *PUBLISHED]


def test_of_a_retried_micro_batch_a_target_that_has_it_is_left_alone(tmp_path: Path) -> None:
    stream = Stream(tmp_path, letters=True, deferred=True, retried=0)
    stream.one.known[0] = WriteResult("run", Commit("one", 1), Counts(read=5), repeated=True)
    assert stream() == [
        "ours", "decode", "begin one", "begin two", "ours", "letters one", "stage two", "ours", "publish two", "settle two",
    ]  # fmt: skip


def test_letters_of_refused_rows_are_stored_before_the_others_are_staged_again(tmp_path: Path) -> None:
    stream = Stream(tmp_path, letters=True, deferred=True)
    stream.two.refuses = 2
    again = ["search two", "ours", "letters two", "begin two", "stage two", "ours", "publish two"]
    assert stream() == [
        "ours", "decode", *WRITTEN, "ours", "letters", *PUBLISHED[:-1], *again, *again, "settle two",
    ]  # fmt: skip
    assert stream.work.counts.bad == 2


def test_the_search_for_refused_rows_is_given_up(tmp_path: Path) -> None:
    stream = Stream(tmp_path, letters=True)
    stream.one.refuses = 9
    with pytest.raises(DataError, match="refused"):
        stream()
    assert (stream.log.count("search one"), stream.two.known) == (3, {})


def test_where_bad_rows_fail_the_micro_batch_none_are_searched_for(tmp_path: Path) -> None:
    stream = Stream(tmp_path)
    stream.one.refuses = 1
    with pytest.raises(DataError, match="refused"):
        stream()
    assert "search one" not in stream.log


@pytest.mark.parametrize("step", ["begin", "stage"])
def test_a_target_that_cannot_be_staged_keeps_the_others_from_being_published(tmp_path: Path, step: str) -> None:
    stream = Stream(tmp_path)
    stream.two.broken = step
    with pytest.raises(ConnectionFailed, match="two is down"):
        stream()
    assert stream.one.known == {}


@pytest.mark.parametrize("step", ["begin", "stage", "publish"])
def test_what_a_tolerated_target_misses_is_kept_and_published_before_the_next_micro_batch(
    tmp_path: Path, step: str
) -> None:
    stream = Stream(tmp_path, is_tolerant=True)
    stream.one.broken = step
    assert stream()[-3:] == ["publish two", "settle two", "keep one"]
    assert (stream.work.counts.errors, stream.work.counts.behind) == (1, {"one": 1, "two": 0})
    stream.one.broken = None
    stream.two.broken = "stage"
    assert stream(1) == [
        "ours", "decode", "begin one", "stage one", "ours", "publish one", "settle one",
        *WRITTEN, *PUBLISHED[:3], "keep two",
    ]  # fmt: skip
    assert stream.work.counts.behind == {"one": 0, "two": 1}
