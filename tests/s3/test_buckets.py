"""Buckets without Spark: paths, conditions, locks, and batches that are there when their marks are."""

from __future__ import annotations

import json
import pickle
import threading
import time
from dataclasses import replace
from datetime import datetime, timezone

import pytest

from ematix_flow import DeltaS3Connection
from ematix_flow.backends.files.commit_markers import CommitMarkers
from ematix_flow.declare.streams.options import StreamOptions, stream_from
from ematix_flow.declare.streams.spec import StreamSpec
from ematix_flow.engine.connections.probe import check_reachable
from ematix_flow.foundation.errors import (
    ConfigError,
    ConnectionFailed,
    LeaseHeld,
    LeaseLost,
    PermissionDenied,
    Unreachable,
)
from ematix_flow.spool.folder import spool_folder, spool_folder_at
from ematix_flow.spool.receiver import Delivery
from ematix_flow.spool.segments import Segment, encode_segment, read_segment
from ematix_flow.storage.addresses import register_bucket
from ematix_flow.storage.object_store import ABSENT, ConditionFailed
from ematix_flow.storage.paths import LakeRoot, append_line, lines_of, read_text_if_exists, remove, write_atomically
from ematix_flow.storage.s3_bucket import S3Bucket
from ematix_flow.storage.s3_lease import hold_lease
from ematix_flow.storage.s3_path import S3Path
from ematix_flow.storage.s3_spark import hadoop_settings
from ematix_flow.storage.spark_checkpoint import last_planned
from ematix_flow.streaming.runtime.checkpoint_folder import CheckpointFolder
from tests.harness.buckets import TestBucket


class Held:
    """A lock that is ours, or is lost at some moment."""

    def __init__(self, checks: int | None = None) -> None:
        self.left = checks

    def check(self) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise LeaseLost("the lock was lost")


@pytest.fixture
def there(s3_url: str) -> TestBucket:
    return TestBucket.at(s3_url, "lake")


@pytest.fixture
def place(there: TestBucket) -> LakeRoot:
    return LakeRoot.of(DeltaS3Connection("lake", **there.fields))


@pytest.fixture
def table(place: LakeRoot) -> S3Path:
    path = place.table("raw", "events")
    assert isinstance(path, S3Path)
    return path


def test_a_path_in_a_bucket_answers_like_a_path_of_a_disk(place: LakeRoot, there: TestBucket) -> None:
    for key in ("a/x.csv", "a/b/y.csv", "a-b/z.csv", "a.csv"):
        there.put(key, key.encode())
    root = place.root
    folder = root / "a"
    assert [item.name for item in sorted(root.iterdir(), key=lambda item: item.name)] == ["a", "a-b", "a.csv"]
    assert (folder.is_dir(), folder.is_file(), folder.exists()) == (True, False, True)
    assert ((folder / "x.csv").is_file(), (folder / "x.csv").is_dir(), (folder / "x").exists()) == (True, False, False)
    assert sorted(item.name for item in folder.glob("*")) == ["b", "x.csv"]
    assert [str(item.relative_to(root)) for item in folder.rglob("*.csv")] == ["a/b/y.csv", "a/x.csv"]
    assert (folder / "b" / "y.csv").read_text() == "a/b/y.csv"
    assert ((folder / "b").parent, (folder / "b" / "y.csv").stem, folder.name) == (folder, "y", "a")
    remove(folder)
    assert there.keys() == ["a-b/z.csv", "a.csv"]


def test_texts_and_lines_are_kept_as_in_files(place: LakeRoot) -> None:
    path = place.state("load.json")
    assert read_text_if_exists(path) is None
    write_atomically(path, "{}")
    assert read_text_if_exists(path) == "{}"
    history = place.state("run_history.jsonl")
    assert lines_of(history) == []
    for number in range(20):
        append_line(history, f"line {number}")
    assert lines_of(history) == [f"line {number}" for number in range(20)]


def test_a_write_on_a_condition_has_one_winner(place: LakeRoot) -> None:
    root = place.root
    assert isinstance(root, S3Path)
    bucket, key = root.bucket, (root / "once").key
    won: list[int] = []

    def write(number: int) -> None:
        try:
            bucket.put(key, str(number).encode(), match=ABSENT)
            won.append(number)
        except ConditionFailed:
            pass

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = bucket.get(key)
    assert found is not None
    assert [found.body] == [str(number).encode() for number in won]
    tag = bucket.put(key, b"next", match=found.tag)
    with pytest.raises(ConditionFailed):
        bucket.put(key, b"late", match=found.tag)
    assert bucket.get(key) is not None
    bucket.delete([key])
    with pytest.raises(ConditionFailed):
        bucket.put(key, b"gone", match=tag)


def test_a_lock_lets_one_in_and_is_taken_from_a_holder_that_fell_silent(place: LakeRoot) -> None:
    path = place.state("locks", "t")
    assert isinstance(path, S3Path)
    inside: list[str] = []

    def work(name: str) -> None:
        with hold_lease(path):
            inside.append(name)
            time.sleep(0.2)
            inside.append(name)

    threads = [threading.Thread(target=work, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [inside[number] for number in (0, 2, 4)] == [inside[number] for number in (1, 3, 5)]
    path.write_text(json.dumps({"owner": "a dead process", "free": False}))
    began = time.monotonic()
    with hold_lease(path, seconds=2) as lease:
        assert time.monotonic() - began > 1
        lease.check()
        path.write_text(json.dumps({"owner": "a robber", "free": False}))
        time.sleep(0.8)
        with pytest.raises(LeaseLost):
            lease.check()


def test_a_batch_is_there_when_its_mark_is(table: S3Path, there: TestBucket) -> None:
    marks = CommitMarkers(table)
    stage = table / "stage"
    (stage / "batch" / "part-0.csv").write_text("1")
    (stage / "batch" / "deep" / "part-1.csv").write_text("2")
    assert marks.batches() == []
    marks.publish("r1", stage / "batch", '{"writer": "w"}', instead={}, anew=stage / "table", hold=Held())
    assert [batch.name for batch in marks.batches()] == ["flow_batch=r1"]
    assert there.get("raw/events/flow_batch=r1/deep/part-1.csv") == b"2"
    assert marks.note("r1") == '{"writer": "w"}'
    assert marks.note("r") is None
    with pytest.raises(LeaseHeld, match="meanwhile"):
        marks.publish("r1", stage / "batch", "other", instead={}, anew=stage / "table", hold=Held())
    with pytest.raises(LeaseHeld, match="is publishing"):
        marks.discard_run("r1")


def test_a_run_that_loses_its_lock_among_the_copies_publishes_nothing(table: S3Path, there: TestBucket) -> None:
    marks, stage = CommitMarkers(table), table / "stage"
    for number in range(5):
        (stage / "batch" / f"part-{number}.csv").write_text(str(number))
    with pytest.raises(LeaseLost):
        marks.publish("r1", stage / "batch", "note", instead={}, anew=stage / "table", hold=Held(checks=3))
    assert marks.batches() == []
    marks.discard_run("r1")
    assert there.keys("raw/events/flow_batch=") == []
    # A run that is given up can no longer publish, unless it is begun again under the same name, as a stream does.
    with pytest.raises(ConditionFailed):
        table.bucket.put((table / "_commits" / "flow_batch=r1").key, b"late", match=ABSENT)
    marks.publish("r1", stage / "batch", "note", instead={}, anew=stage / "table", hold=Held())
    assert [batch.name for batch in marks.batches()] == ["flow_batch=r1"]


def test_batches_that_are_replaced_are_never_seen_together_with_the_new_ones(table: S3Path) -> None:
    marks, stage = CommitMarkers(table), table / "stage"
    (stage / "batch" / "part.csv").write_text("x")
    for run in ("r1", "r2", "r3"):
        marks.publish(run, stage / "batch", f"note of {run}", instead={}, anew=stage / "table", hold=Held())
    new = marks.renewed("flow_batch=r1", "r4")
    (stage / "table" / "flow_batch=r1" / "part.csv").write_text("anew")
    instead = {"flow_batch=r1": new, "flow_batch=r2": None}
    with pytest.raises(LeaseLost):
        marks.publish("r4", stage / "batch", "n", instead=instead, anew=stage / "table", hold=Held(checks=1))
    before = ["flow_batch=r1", "flow_batch=r2", "flow_batch=r3"]
    assert [batch.name for batch in marks.batches()] == before
    marks.discard_run("r4")
    assert [batch.name for batch in marks.batches()] == before
    marks.publish("r4", stage / "batch", "n", instead=instead, anew=stage / "table", hold=Held())
    after = ["flow_batch=r1~r4", "flow_batch=r3", "flow_batch=r4"]
    assert [batch.name for batch in marks.batches()] == after  # although nothing is deleted yet
    for _ in range(2):
        marks.finish("r4")
        assert [batch.name for batch in marks.batches()] == after
    assert (table / "flow_batch=r1~r4" / "part.csv").read_text() == "anew"
    assert not (table / "flow_batch=r1").exists()
    assert (marks.note("r1"), marks.note("r2")) == ("note of r1", None)
    assert marks.renewed("flow_batch=r1~r4", "r5") == "flow_batch=r1~r5"


def test_what_a_bucket_says_is_one_sentence_without_the_login(there: TestBucket) -> None:
    wrong = {**there.fields, "secret_access_key": "not-the-secret-at-all"}
    with pytest.raises(PermissionDenied, match="refused") as refused:
        check_reachable(DeltaS3Connection("lake", **wrong))
    assert "not-the-secret" not in str(refused.value)
    with pytest.raises(ConnectionFailed, match="there is no bucket 'nowhere-here'"):
        check_reachable(DeltaS3Connection("lake", **{**there.fields, "bucket": "nowhere-here"}))
    with pytest.raises(Unreachable, match="cannot be reached at http://127"):
        check_reachable(DeltaS3Connection("lake", **{**there.fields, "endpoint": "http://127.0.0.1:1"}))
    assert check_reachable(DeltaS3Connection("lake", **there.fields)) == f"s3://flow-tests/{there.prefix}"


def test_spark_is_configured_for_one_bucket_only(there: TestBucket) -> None:
    bucket = S3Bucket.of(DeltaS3Connection("lake", **there.fields))
    settings = hadoop_settings(bucket)
    assert all(name.startswith("fs.s3a.bucket.flow-tests.") for name in settings)
    assert settings["fs.s3a.bucket.flow-tests.connection.ssl.enabled"] == "false"
    assert bucket.secret_access_key not in repr(bucket)
    amazon = S3Bucket("b", "https://s3.amazonaws.com", "eu-west-1", "k", "s")
    assert "fs.s3a.bucket.b.endpoint" not in hadoop_settings(amazon)


def stream_in(there: TestBucket) -> StreamSpec:
    lake = DeltaS3Connection("lake", **there.fields)
    said = {
        "name": "orders", "source": lake, "source_query": "raw.orders", "target": lake, "target_table": ("raw", "copy"),
        "checkpoint": f"s3://{lake.bucket}/{there.prefix}/streams/orders",
    }  # fmt: skip
    return stream_from(StreamOptions.parse(said, None), None)


def test_a_stream_keeps_its_folder_in_a_bucket(there: TestBucket) -> None:
    spec = stream_in(there)
    folder = CheckpointFolder.of(spec)
    generation = folder.prepare()
    assert (folder.prepare(), folder.jars) == (generation, {"s3a"})
    for number in range(3):
        there.put(f"streams/orders/spark/offsets/{number}", f'v1\n{{}}\n{{"version": {number}}}'.encode())
        there.put(f"streams/orders/spark/commits/{number}", b"v1\n{}")
    there.put("streams/orders/spool/q/1.arrow", b"x")
    folder.learned().save("{}")
    assert (folder.last_committed(), folder.ends(2), folder.learned().load()) == (2, [{"version": 2}], "{}")
    assert last_planned(str(folder.root)) == {"version": 2}
    aside = folder.start_new_generation("latest", datetime(2026, 1, 2, tzinfo=timezone.utc))
    assert folder.prepare() != generation
    assert (folder.last_committed(), folder.start_at()) == (None, "latest")
    kept = str(aside).rpartition("/")[2]
    assert len(there.keys(f"streams/{kept}/spark/")) == 6
    assert there.keys("streams/orders/spool/") == ["streams/orders/spool/q/1.arrow"]
    with pytest.raises(ConfigError, match="no connection has its login"):
        CheckpointFolder.of(replace(spec, checkpoint="s3://somewhere-else/orders"))
    with pytest.raises(ConfigError, match="cannot keep its checkpoint at"):
        CheckpointFolder.of(replace(spec, checkpoint="gs://somewhere/orders"))


def test_a_spool_in_a_bucket_keeps_segments_and_notes(there: TestBucket, place: LakeRoot) -> None:
    register_bucket(place.root.bucket)  # type: ignore[union-attr]
    folder = spool_folder_at(spool_folder(f"s3://flow-tests/{there.prefix}/streams/orders", "queue"))
    folder.acquire()
    segment = Segment(1, 0, 2)
    messages = [Delivery(b"a", message_id="1", tag=1), Delivery(b"b", message_id="2", tag=2)]
    folder.write(segment.name, encode_segment(segment, messages, "queue"))
    assert folder.names() == [segment.name]
    assert [batch.column(1).to_pylist() for batch in read_segment(folder.path(segment.name))] == [[b"a", b"b"]]
    assert (folder.text("note"), folder.stamp("note")) == (None, None)
    folder.write("note", b"1")
    first = folder.stamp("note")
    folder.write("note", b"2")
    assert (folder.text("note"), folder.stamp("note") != first) == ("2", True)
    folder.remove(segment.name)
    assert folder.names() == ["note"]
    assert pickle.loads(pickle.dumps(folder)).text("note") == "2"
