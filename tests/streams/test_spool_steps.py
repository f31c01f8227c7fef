"""The spool, step by step and without threads: whatever happens in whatever order, nothing is lost and nothing doubled."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from ematix_flow.foundation.errors import LeaseHeld, RunFailed
from ematix_flow.spool import segments
from ematix_flow.spool.folder import SpoolFolder
from ematix_flow.spool.ledger import SpoolOffset
from ematix_flow.spool.receiver import Delivery, SpoolLimits, identity
from ematix_flow.spool.segments import Segment
from ematix_flow.spool.spool import Spool, write_commit_note, write_refusals
from tests.full import IS_FULL
from tests.streams.folder_queue import FolderQueue, FolderReceiver
from tests.streams.spool_runs import spark

__all__ = ["spark"]

LIMITS = SpoolLimits(max_rows=6, segment_rows=4, window=12, heartbeat_seconds=0.0)


class Life(RuleBasedStateMachine):
    """A broker, a spool, and Spark as its checkpoint knows it: a log of planned ends, and how many of them are done.

    The target keeps each batch once, under its number, as an effectively-once target does.
    """

    def __init__(self) -> None:
        super().__init__()
        memory = Path("/dev/shm")  # what a disk does with a sync is not the question here, and takes long
        self.home = Path(tempfile.mkdtemp(prefix="flow-life-", dir=memory if memory.is_dir() else None))
        self.queue = FolderQueue(self.home / "queue")
        self.queue.publish([])
        self.published: Counter[str] = Counter()
        self.nameless: set[str] = set()
        self.refused: set[str] = set()
        self.repeated: set[str] = set()
        self.plans: list[SpoolOffset] = []
        self.done = self.told = self.generation = 0
        self.initial = SpoolOffset()
        self.target: dict[tuple[int, int], list[tuple[int, str]]] = {}
        self.count = 0

    @initialize()
    def begin(self) -> None:
        self._start()

    def teardown(self) -> None:
        try:
            self._run_dry()
            self._check()
        finally:
            self.spool.release()
            shutil.rmtree(self.home, ignore_errors=True)

    def _start(self, *, asks_first: bool = False) -> None:
        """As Spark starts a query: what is planned is told, what is not done is planned again, then offsets are asked.

        A query that drains asks for offsets first, and plans just one batch, up to there.
        """
        self.folder = SpoolFolder(self.home / "spool")
        self.spool = Spool(self.folder, LIMITS, "queue")
        self.receiver = FolderReceiver(self.home / "queue")
        self.receiver.connect(LIMITS.window)
        if asks_first:
            self.spool.begin()
            asked = self.spool.latest()
        if not self.plans:
            self.initial = self.spool.initial()
        else:
            assert self.spool.plan(self.plans[-1], self.plans[-1]) == []
        if self.done < len(self.plans):
            assert len(self.plans) > 1 or self.spool.initial() == self.initial
            self._write()
            self.done += 1
        if asks_first:
            self._planned(asked)
        else:
            self.spool.begin()

    @property
    def start_of_last(self) -> SpoolOffset:
        return self.plans[-2] if len(self.plans) > 1 else self.initial

    @property
    def last(self) -> tuple[int, int]:
        """The last planned batch, as the target knows it."""
        return self.generation, len(self.plans) - 1

    def _write(self) -> None:
        """The last planned batch into the target; a second time it must be the same."""
        found = []
        for segment in self.spool.plan(self.start_of_last, self.plans[-1]):
            for batch in segments.read_segment(self.spool.path(segment)):
                found += [(row["offset"], row["value"].decode()) for row in batch.to_pylist()]
        assert self.target.setdefault(self.last, found) == found

    @rule(number=st.integers(1, 7), with_id=st.booleans())
    def publish(self, number: int, with_id: bool) -> None:
        texts = [f"text {self.count + step}" for step in range(number)]
        self.count += number
        self.queue.publish([(f"id {text}" if with_id else None, text) for text in texts])
        self.published.update(texts)
        if not with_id:
            self.nameless.update(texts)

    @precondition(lambda self: self.count > len(self.nameless))
    @rule(data=st.data())
    def publish_again(self, data: st.DataObject) -> None:
        """A publisher that did not hear the broker's confirmation."""
        text = data.draw(st.sampled_from(sorted(set(self.published) - self.nameless)))
        if text not in self.refused:  # such a message would be a new one
            self.queue.publish([(f"id {text}", text)])
            self.repeated.add(text)

    @rule(limit=st.integers(1, 9))
    def receive(self, limit: int) -> None:
        self.spool.enqueue(self.receiver.receive(limit, 0.0))

    @precondition(lambda self: self.receiver.given)
    @rule(data=st.data())
    def receive_again(self, data: st.DataObject) -> None:
        """The broker waited too long for an answer; only messages with an id stand that."""
        name = data.draw(st.sampled_from(self.receiver.given))
        told = json.loads((self.home / "queue" / "ready" / name).read_text())
        if told["id"]:
            self.spool.enqueue([self.receiver.again(name)])

    @rule()
    def store(self) -> None:
        self.spool.write_pending()

    @precondition(lambda self: self.done == len(self.plans))
    @rule(dies=st.booleans())
    def plan(self, dies: bool) -> None:
        """Spark asks how far it may go, and writes that down, if it lives so long; then it commits what came before."""
        end = self.spool.latest()
        if end == (self.plans[-1] if self.plans else self.initial):
            return
        if dies:
            self.crash(asks_first=False)
            return
        self._planned(end)

    def _planned(self, end: SpoolOffset) -> None:
        before = self.plans[-1] if self.plans else self.initial
        if end == before:
            return
        assert end.segment > before.segment
        self.plans.append(end)
        if len(self.plans) > 1:
            self.spool.commit(before)

    @precondition(lambda self: self.done < len(self.plans))
    @rule()
    def write(self) -> None:
        self._write()

    @precondition(lambda self: self.done < len(self.plans) and self.target.get(self.last))
    @rule(data=st.data())
    def refuse(self, data: st.DataObject) -> None:
        """The stream wants some messages of the batch at work dead-lettered."""
        rows = [row for row in self.target[self.last] if row[1] not in self.nameless | self.repeated]
        chosen = data.draw(st.lists(st.sampled_from(rows), max_size=2)) if rows else []
        write_refusals(self.folder, [position for position, _ in chosen])
        self.refused.update(text for _, text in chosen)

    @precondition(lambda self: self.done < len(self.plans) and self.last in self.target)
    @rule(tells=st.booleans())
    def finish(self, tells: bool) -> None:
        """The batch is in the checkpoint; the stream may leave its note or not."""
        self.done = len(self.plans)
        if tells:
            write_commit_note(self.folder, self.plans[-1])
            self.told = self.done

    @precondition(lambda self: self.done == len(self.plans) == self.told)
    @rule(asks_first=st.booleans())
    def begin_anew(self, asks_first: bool) -> None:
        """Somebody gives the stream a new checkpoint; what it was told of stays done."""
        self.plans, self.done, self.told, self.generation = [], 0, 0, self.generation + 1
        self.crash(asks_first=asks_first)

    @rule()
    def settle(self) -> None:
        """One turn of the intake without anything received."""
        self.spool.read_commit_note(at_once=True)
        due = self.spool.due_answers()
        self.receiver.ack(due.acks)
        self.receiver.nack([tag for tag, _ in due.refusals], requeue=False)
        self.spool.acknowledged(due)
        self.spool.clean_up()

    @rule()
    def lose_acknowledgements(self) -> None:
        """They were sent, and the connection died before the broker saw them."""
        self.spool.due_answers()
        self.disconnect()

    @rule()
    def disconnect(self) -> None:
        self.spool.disconnected()
        self.receiver = FolderReceiver(self.home / "queue")
        self.receiver.connect(LIMITS.window)

    @rule(asks_first=st.booleans())
    def crash(self, asks_first: bool) -> None:
        self.spool.release()
        self._start(asks_first=asks_first)

    def _run_dry(self) -> None:
        quiet = 0
        while quiet < 3:
            before = len(self.plans), len(self.queue.left())
            self.receive(9)
            self.store()
            self.settle()
            if self.done == len(self.plans):
                self.plan(dies=False)
            if self.done < len(self.plans):
                self._write()
                self.finish(tells=False)
            quiet = quiet + 1 if (len(self.plans), len(self.queue.left())) == before else 0

    def _check(self) -> None:
        found = Counter(text for rows in self.target.values() for _, text in rows)
        named = {text: number for text, number in found.items() if text not in self.nameless}
        assert named == {text: 1 for text in self.published if text not in self.nameless}
        assert {text for text in found if text in self.nameless} == self.nameless
        assert self.queue.left() == []
        assert set(self.queue.dead()) == self.refused
        positions = [position for rows in self.target.values() for position, _ in rows]
        assert positions == list(range(len(positions)))


TestLife = Life.TestCase
TestLife.settings = settings(
    max_examples=400 if IS_FULL else 60, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
)


def message(text: str, *, message_id: str | None = None, tag: object = 0) -> Delivery:
    return Delivery(value=text.encode(), tag=tag, message_id=message_id)


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    made = Spool(SpoolFolder(tmp_path / "spool"), LIMITS, "queue")
    made.begin()
    return made


def stored(spool: Spool, *texts: str, ids: bool = True) -> SpoolOffset:
    spool.enqueue([message(text, message_id=f"id {text}" if ids else None, tag=text) for text in texts])
    spool.write_pending()
    return spool.latest()


def test_a_segment_has_exactly_the_columns_of_a_message_as_spark_takes_them(spark: Any) -> None:
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    assert segments.schema().equals(to_arrow_schema(StructType.fromDDL(segments.DDL)))


def test_what_was_written_is_read_back_with_its_position(spool: Spool, tmp_path: Path) -> None:
    given = Delivery(b"\x00\xff", "tag", key=b"k", headers=(("a", b"1"), ("a", None)), message_id="m")
    spool.enqueue([given, message("plain")])
    spool.write_pending()
    (segment,) = spool.plan(SpoolOffset(), spool.latest())
    rows = [row for batch in segments.read_segment(spool.path(segment)) for row in batch.to_pylist()]
    assert rows[0]["headers"] == [{"key": "a", "value": b"1"}, {"key": "a", "value": None}]
    assert [(row["value"], row["key"], row["topic"], row["offset"], row["message_id"]) for row in rows] == [
        (b"\x00\xff", b"k", "queue", 0, "m"),
        (b"plain", None, "queue", 1, None),
    ]


def test_a_batch_is_no_larger_than_the_limit(spool: Spool) -> None:
    for number in range(5):
        spool.enqueue([message(f"{number} {row}", message_id=f"{number} {row}") for row in range(3)])
        spool.write_pending()
    ends = [spool.latest() for _ in range(4)]
    assert [end.rows for end in ends] == [6, 12, 15, 15]


def test_an_empty_batch_is_offered_while_a_commit_is_awaited(spool: Spool) -> None:
    end = stored(spool, "a", "b")
    beat = spool.latest()
    assert (beat.rows, beat.segment > end.segment) == (end.rows, True)
    assert spool.plan(end, beat) == []
    spool.commit(beat)
    assert sorted(spool.due_answers().acks) == ["a", "b"]
    assert spool.latest() == beat


def test_of_a_batch_that_is_done_again_the_last_refusals_count(spool: Spool, tmp_path: Path) -> None:
    end, folder = stored(spool, "a", "b", "c", "d"), SpoolFolder(tmp_path / "spool")
    write_refusals(folder, [0, 1], batch="first-0")
    spool.read_commit_note(at_once=True)
    write_refusals(folder, [1, 2], batch="first-0")
    write_refusals(folder, [], batch="first-1")
    spool.commit(end)
    due = spool.due_answers()
    assert (sorted(due.acks), sorted(tag for tag, _ in due.refusals)) == (["a", "d"], ["b", "c"])
    assert [name for name in folder.names() if name.endswith(".refused")] == ["first-0.refused"]


def test_a_segment_that_vanished_is_not_passed_over(spool: Spool, tmp_path: Path) -> None:
    end = stored(spool, "a", "b", "c")
    (segment,) = spool.plan(SpoolOffset(), end)
    spool.release()
    Path(spool.path(segment)).unlink()
    again = Spool(SpoolFolder(tmp_path / "spool"), LIMITS, "queue")
    with pytest.raises(RunFailed, match="0 of the 3 messages"):
        again.plan(SpoolOffset(), end)


def test_one_process_at_a_time_has_a_spool(spool: Spool, tmp_path: Path) -> None:
    with pytest.raises(LeaseHeld, match="another process"):
        SpoolFolder(tmp_path / "spool").acquire(0.1)
    spool.release()
    SpoolFolder(tmp_path / "spool").acquire(0.1)


def test_numbers_are_never_given_twice(spool: Spool, tmp_path: Path) -> None:
    stored(spool, "a")
    spool.release()
    again = Spool(SpoolFolder(tmp_path / "spool"), LIMITS, "queue")
    again.planned(SpoolOffset())
    again.begin()  # Spark never planned the segment, so it is gone
    assert not list((tmp_path / "spool").glob("*.arrow"))
    assert stored(again, "a").segment > 1


def test_a_draft_of_a_dead_process_is_taken_away(tmp_path: Path) -> None:
    (tmp_path / "spool").mkdir()
    draft = tmp_path / "spool" / f".{Segment(3, 0, 5).name}.part"
    draft.write_bytes(b"half")
    Spool(SpoolFolder(tmp_path / "spool"), LIMITS, "queue").begin()
    assert not draft.exists()


def test_identities_outlive_their_segments_for_a_while(tmp_path: Path) -> None:
    few = SpoolLimits(heartbeat_seconds=0.0, remember=4)
    spool = Spool(SpoolFolder(tmp_path / "spool"), few, "queue")
    spool.begin()
    for number in range(6):
        spool.commit(stored(spool, f"{number} a", f"{number} b"))
        spool.acknowledged(spool.due_answers())
        spool.clean_up()
    assert len(list((tmp_path / "spool").glob("*.arrow"))) == 1
    spool.enqueue([message("4 a", message_id="id 4 a", tag="again"), message("0 a", message_id="id 0 a", tag="old")])
    assert spool.due_answers().acks == ["again"]
    assert spool.pending[0] == 1


def test_commits_may_come_faster_than_segments_are_dropped(spool: Spool, tmp_path: Path) -> None:
    for number in range(4):
        spool.commit(stored(spool, f"{number} a", f"{number} b"))
    spool.acknowledged(spool.due_answers())
    spool.clean_up()
    spool.clean_up()
    assert [Segment.of(path.name).first for path in (tmp_path / "spool").glob("*.arrow")] == [6]


def test_a_query_that_asks_before_it_tells_of_its_plans_loses_nothing(spool: Spool, tmp_path: Path) -> None:
    end = stored(spool, "a", "b")
    beat = spool.latest()  # planned, and the process dies
    spool.release()
    again = Spool(SpoolFolder(tmp_path / "spool"), LIMITS, "queue")
    again.begin()
    first = again.latest()
    assert (first.segment > beat.segment, first.rows) == (True, 2)
    assert [segment.rows for segment in again.plan(SpoolOffset(), end)] == [2]
    assert again.plan(beat, first) == []


def test_messages_that_share_an_id_are_not_taken_for_one(spool: Spool) -> None:
    spool.enqueue([message("one", message_id="the same"), message("two", message_id="the same")])
    assert spool.pending[0] == 2
    assert identity("", b"x") is None


def test_a_message_that_was_dead_lettered_may_come_back(spool: Spool, tmp_path: Path) -> None:
    end = stored(spool, "a", "b")
    write_refusals(SpoolFolder(tmp_path / "spool"), [1])
    spool.commit(end)
    due = spool.due_answers()
    assert (due.acks, [tag for tag, _ in due.refusals]) == (["a"], ["b"])
    spool.acknowledged(due)
    spool.enqueue([message("b", message_id="id b", tag="retried"), message("a", message_id="id a", tag="late")])
    assert spool.pending[0] == 1
    assert spool.due_answers().acks == ["late"]
