"""The spool under Spark, with a broker that is a folder: nothing lost, nothing doubled, whatever is killed."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from ematix_flow.contract.stream import StreamRead
from ematix_flow.foundation.errors import ConfigError, DeclarationError, MissingTable, Unsupported
from ematix_flow.spool.folder import spool_folder
from ematix_flow.spool.reader import SegmentFiles, SpoolReader, SpoolReaderSettings, data_source, distribute_segments
from ematix_flow.spool.receiver import SpoolLimits
from ematix_flow.spool.segments import Segment
from tests.streams.folder_queue import FolderQueue, FolderReceiver, FolderSource
from tests.streams.spool_job import Job, Target, as_row
from tests.streams.spool_runs import kill, launch, once, run, run_until_killed, running, spark, texts, wait_for

__all__ = ["spark"]
POINTS = ("after_plan:1", "before_write:2", "after_write:3", "after_commit:4")


@dataclass
class Place:
    """A queue, a checkpoint and a target of one test."""

    home: Path
    queue: FolderQueue
    target: Target
    job: Job

    def publish(self, number: int, *, first: int = 0, ids: bool = True) -> list[str]:
        values = [f"text {first + step}" for step in range(number)]
        self.queue.publish([(f"id {text}" if ids else None, text) for text in values])
        return values

    def is_done(self) -> None:
        """Everything was acknowledged, soon after the end."""
        wait_for(lambda: self.queue.left() == [], seconds=10, what="the last acknowledgement")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    queue = FolderQueue(tmp_path / "queues" / "orders")
    queue.publish([])
    job = Job(
        "folder", {"path": str(tmp_path / "queues")}, "orders", str(tmp_path / "stream"), str(tmp_path / "target")
    )
    return Place(tmp_path, queue, Target(tmp_path / "target"), replace(job, max_rows=200))


def test_everything_arrives_once_in_order_and_is_acknowledged(place: Place) -> None:
    values = place.publish(1000)
    run(replace(place.job, rows=1000))
    assert [row["value"] for row in place.target.rows()] == values
    place.is_done()
    first = place.target.rows()[0]
    assert (first["topic"], first["offset"], first["message_id"], first["headers"]) == (
        "orders",
        0,
        "id text 0",
        {"n": "1"},
    )
    assert place.target.largest() <= 200


@pytest.mark.full
def test_a_window_smaller_than_the_queue_does_not_stall_without_the_engines_word(place: Place) -> None:
    values = place.publish(400)
    run(replace(place.job, rows=400, tells=False, options={"window": 150}, linger=2.5))
    assert texts(place.target) == once(values)
    place.is_done()


def test_killed_at_every_step_nothing_is_lost_and_nothing_doubled(place: Place) -> None:
    values = place.publish(900)
    for point in POINTS:
        run_until_killed(place.job, point)
    values += place.publish(100, first=900)
    run(replace(place.job, rows=1000))
    assert texts(place.target) == once(values)
    assert place.target.is_steady
    place.is_done()


@pytest.mark.full("kills by chance")
def test_killed_at_any_moment_nothing_is_lost_and_nothing_doubled(place: Place) -> None:
    values: list[str] = []
    for number in range(8):
        values += place.publish(200, first=200 * number)
        process = launch(replace(place.job, max_rows=37))
        try:
            known = len(place.target.rows()) + 25 * number
            wait_for(lambda known=known: len(place.target.rows()) > known)
        finally:
            kill(process)
    run(replace(place.job, rows=len(values)))
    assert texts(place.target) == once(values)
    assert place.target.is_steady
    place.is_done()


@pytest.mark.full
def test_messages_without_an_id_arrive_at_least_once(place: Place) -> None:
    values = place.publish(300, ids=False)
    run_until_killed(place.job, "after_write:1")
    run(replace(place.job, rows=300, linger=2.0))
    assert set(texts(place.target)) == set(values)
    place.is_done()


def under_spark(place: Place, spark: Any, **options: Any) -> Any:
    """A query of Spark's own into the target."""
    source = FolderSource(_folders(place))
    read = StreamRead("job", "orders", place.job.checkpoint, max_rows=100, options=options)
    writer = source.frame(spark, read).writeStream.foreachBatch(
        lambda frame, number: place.target.write(
            number, [as_row(row.asDict(recursive=True)) for row in frame.collect()]
        )
    )
    return writer.option("checkpointLocation", f"{place.job.checkpoint}/spark").start()


@pytest.mark.full
def test_spark_reads_everything_once_and_tells_the_end_of_its_batches(place: Place, spark: Any) -> None:
    values = place.publish(300)
    query = under_spark(place, spark, window=150)
    try:
        wait_for(
            lambda: (len(place.target.rows()) == 300 and not place.queue.left()) or not query.isActive, seconds=240
        )
        assert query.exception() is None
    finally:
        query.stop()
    assert [row["value"] for row in place.target.rows()] == values


@pytest.mark.full("a process of Spark's is killed, which stands for all that may go wrong there")
def test_the_process_that_holds_the_connection_may_die_alone(place: Place, spark: Any) -> None:
    values = place.publish(300)
    query = under_spark(place, spark)
    wait_for(lambda: len(place.target.rows()) >= 40, seconds=240)
    os.kill(_holder(), signal.SIGKILL)
    wait_for(lambda: not query.isActive, seconds=240)
    values += place.publish(100, first=300)
    query = under_spark(place, spark)
    wait_for(lambda: len(place.target.rows()) >= 400 or not query.isActive, seconds=240)
    query.stop()
    assert texts(place.target) == once(values)


def _holder() -> int:
    """The Python process that Spark keeps for the source of our session."""
    parents: dict[int, int] = {}
    holders = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(path.name)] = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            if b"python_streaming_source_runner" in (path / "cmdline").read_bytes():
                holders.append(int(path.name))
        except (OSError, ProcessLookupError):
            continue
    for holder in holders:
        above = holder
        while above := parents.get(above, 0):
            if above == os.getpid():
                return holder
    raise AssertionError("no process holds the source")


def test_a_drain_takes_what_is_there_and_ends(place: Place) -> None:
    job = replace(place.job, once=True, options={"drain": True})
    values = place.publish(500) + place.publish(50, first=500, ids=False)
    run(job)
    run(job)  # there is nothing left to do
    values += place.publish(10, first=550)
    run(job)
    assert texts(place.target) == once(values)
    place.is_done()


@pytest.mark.full
@pytest.mark.parametrize("drains", [False, True])
def test_a_new_checkpoint_goes_on_behind_what_was_committed(place: Place, drains: bool) -> None:
    values = place.publish(300)
    run(replace(place.job, rows=300, max_rows=100))
    shutil.rmtree(Path(place.job.checkpoint) / "log")
    place.target.folder.rename(place.home / "before")
    target = Target(place.target.folder)
    new = place.publish(30, first=300)
    run(replace(place.job, once=True, options={"drain": True}) if drains else replace(place.job, rows=30))
    assert texts(target) == once(new)
    assert texts(Target(place.home / "before")) == once(values)
    place.is_done()


def test_a_broker_that_goes_away_does_not_end_the_query(place: Place) -> None:
    values = place.publish(300)
    with running(replace(place.job, rows=600, max_rows=50)) as ended:
        wait_for(lambda: len(place.target.rows()) >= 50)
        place.queue.go_down()
        values += place.publish(300, first=300)
        time.sleep(0.5)
        place.queue.come_back()
        ended()
    assert texts(place.target) == once(values)
    place.is_done()


@pytest.mark.full
def test_a_refused_message_goes_to_the_brokers_dead_letters(place: Place) -> None:
    place.publish(20)
    job = replace(place.job, refuses=(3, 5))
    run(replace(job, rows=20, linger=1.5))
    assert sorted(place.queue.dead()) == ["text 3", "text 5"]
    assert place.queue.left() == []


@pytest.mark.full
def test_a_queue_that_is_not_there_is_reported_in_a_sentence(place: Place) -> None:
    with pytest.raises(MissingTable, match="queue 'payments' is not there"):
        run(replace(place.job, query="payments"))


def _folders(place: Place) -> Any:
    from types import SimpleNamespace

    return SimpleNamespace(name="folders", kind="folder", **place.job.connection)


def test_what_no_queue_can_do_is_refused(place: Place) -> None:
    source = FolderSource(_folders(place))
    with pytest.raises(Unsupported, match="cannot start at 'latest'"):
        source.refuse_unsupported(StreamRead("s", "orders", "/c", start="latest"))
    with pytest.raises(DeclarationError, match="no option 'windows'"):
        source.refuse_unsupported(StreamRead("s", "orders", "/c", options={"windows": 3}))
    with pytest.raises(Unsupported, match="cannot be rewound"):
        source.offsets_at(StreamRead("s", "orders", "/c"), datetime(2026, 1, 1))
    assert source.lost(StreamRead("s", "orders", "/c"), {}) == ()


@pytest.mark.full
def test_lag_is_what_waits_at_the_broker_and_in_the_spool(place: Place) -> None:
    place.publish(7)
    source = FolderSource(_folders(place))
    read = StreamRead("job", "orders", place.job.checkpoint)
    assert [(lag.part, lag.rows) for lag in source.lag(read, {})] == [("orders", 7)]


@pytest.mark.full
def test_a_spool_is_in_a_folder_or_in_a_bucket_that_is_known() -> None:
    with pytest.raises(ConfigError, match="no connection has the login of the bucket"):
        spool_folder("s3a://bucket/checkpoints/x", "orders")
    assert spool_folder("file:///data/x", "a/b") == Path("/data/x/spool/a%2Fb")


@pytest.mark.full
def test_tasks_get_a_reader_without_connection_and_secrets(tmp_path: Path) -> None:
    from pyspark import cloudpickle

    made: list[Callable[[], FolderReceiver]] = []

    def secret() -> FolderReceiver:
        made.append(lambda: FolderReceiver(tmp_path))
        return FolderReceiver(tmp_path)

    settings = SpoolReaderSettings(tmp_path, "orders", secret, SpoolLimits())
    reader = data_source("flow_spool_test", settings)({}).streamReader(None)  # type: ignore[arg-type]
    assert isinstance(reader, SpoolReader)
    assert reader.initialOffset() == {"segment": 0, "rows": 0}
    copy = cloudpickle.loads(cloudpickle.dumps(reader))
    assert vars(copy) == {"_settings": None, "_spool": None, "_intake": None}
    assert list(copy.read(SegmentFiles(()))) == []
    assert made == []


@pytest.mark.full
def test_neighbouring_segments_share_a_task_until_it_has_enough_to_do() -> None:
    small = [Segment(number, 100 * number, 100) for number in range(5)]
    large = [Segment(9 + number, 500 + 15_000 * number, 15_000) for number in range(3)]
    assert [len(group) for group in distribute_segments(small + large)] == [6, 1, 1]
    assert distribute_segments([]) == []
