"""Kinesis as a source and as a target, against an emulator that splits and closes shards as the service does."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pytest

from ematix_flow import KinesisConnection, SQLiteConnection, run_streaming_pipeline
from ematix_flow._core import KinesisBackend
from ematix_flow.backends.kinesis import client as client_module
from ematix_flow.backends.kinesis.client import IteratorExpired, KinesisClient, KinesisLogin
from ematix_flow.backends.kinesis.reader import KinesisReader, KinesisReaderSettings, ShardRange, read_part
from ematix_flow.backends.kinesis.shards import Shard, ShardPosition, ShardPositions
from ematix_flow.backends.kinesis.sink import KinesisSink
from ematix_flow.backends.kinesis.source import KinesisSource
from ematix_flow.contract.stream import ENVELOPE, BrokerJob, StreamRead
from ematix_flow.engine.session.session import spark_session
from ematix_flow.foundation.errors import BadValue, MissingTable, PlanError, Unreachable
from tests.services.kinesis import ACCESS, REGION

DRAIN = {"drain": True}


class Service:
    """A stream of its own, by the plain client."""

    def __init__(self, url: str, shards: int = 2) -> None:
        self.url, self.name = url, f"s-{uuid.uuid4().hex[:10]}"
        self.client: Any = boto3.client(
            "kinesis", endpoint_url=url, region_name=REGION, aws_access_key_id=ACCESS["access_key_id"],
            aws_secret_access_key=ACCESS["secret_access_key"],
        )  # fmt: skip
        self.client.create_stream(StreamName=self.name, ShardCount=shards)
        self.settled()

    def settled(self) -> None:
        until = time.monotonic() + 20
        while self.state() != "ACTIVE":
            assert time.monotonic() < until
            time.sleep(0.05)

    def state(self) -> str:
        return str(self.client.describe_stream(StreamName=self.name)["StreamDescription"]["StreamStatus"])

    @property
    def connection(self) -> KinesisConnection:
        return KinesisConnection("events", stream_name=self.name, region=REGION, endpoint=self.url, **ACCESS)

    def send(self, numbers: range) -> None:
        for start in range(0, len(numbers), 500):
            some = [
                {"Data": json.dumps({"n": n}).encode(), "PartitionKey": f"k{n}"} for n in numbers[start : start + 500]
            ]
            told = self.client.put_records(StreamName=self.name, Records=some)
            assert told["FailedRecordCount"] == 0

    def shards(self) -> list[dict[str, Any]]:
        return list(self.client.list_shards(StreamName=self.name)["Shards"])

    def split(self, shard: dict[str, Any]) -> None:
        span = shard["HashKeyRange"]
        middle = (int(span["StartingHashKey"]) + int(span["EndingHashKey"])) // 2
        self.client.split_shard(StreamName=self.name, ShardToSplit=shard["ShardId"], NewStartingHashKey=str(middle))
        self.settled()

    def merge(self, first: dict[str, Any], second: dict[str, Any]) -> None:
        self.client.merge_shards(
            StreamName=self.name, ShardToMerge=first["ShardId"], AdjacentShardToMerge=second["ShardId"]
        )
        self.settled()


@pytest.fixture
def service(kinesis_url: str) -> Service:
    return Service(kinesis_url)


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    patch = pytest.MonkeyPatch()
    patch.setenv("EMATIX_FLOW_LOGS_DIR", str(tmp_path_factory.mktemp("home") / "logs"))
    yield spark_session({"delta", "s3a"})
    patch.undo()


def reading(folder: Path, **fields: Any) -> StreamRead:
    fields.setdefault("options", DRAIN)
    return StreamRead("events", fields.pop("query", ""), str(folder / fields.pop("checkpoint", "checkpoint")), **fields)


def drained(spark: Any, source: KinesisSource, read: StreamRead) -> list[list[Any]]:
    batches: list[list[Any]] = []
    writer = source.frame(spark, read).writeStream.foreachBatch(lambda rows, _: batches.append(rows.collect()))
    writer = writer.option("checkpointLocation", str(Path(read.checkpoint, "spark"))).trigger(availableNow=True)
    writer.start().awaitTermination()
    return [rows for rows in batches if rows]


def numbers(batches: list[list[Any]]) -> list[int]:
    return sorted(json.loads(bytes(row.value))["n"] for rows in batches for row in rows)


def test_records_arrive_as_envelopes_once_over_restarts_splits_and_merges(
    spark: Any, service: Service, tmp_path: Path
) -> None:
    source, read = KinesisSource(service.connection), reading(tmp_path)
    source.check(read)
    service.send(range(200))
    first = drained(spark, source, read)
    assert numbers(first) == list(range(200))
    row = first[0][0]
    assert list(row.asDict()) == [name for name, _ in ENVELOPE]
    assert (row.topic, row.headers, row.offset) == (service.name, None, None)
    assert bytes(row.key).decode() == f"k{json.loads(bytes(row.value))['n']}"
    shard, _, sequence = row.message_id.partition(":")
    assert (shard, sequence.isdigit()) == (f"shardId-{row.partition:012}", True)
    assert abs((datetime.now(timezone.utc) - row.timestamp.replace(tzinfo=timezone.utc)).total_seconds()) < 600
    assert drained(spark, source, read) == []
    service.split(service.shards()[0])
    service.send(range(200, 400))
    assert numbers(drained(spark, source, read)) == list(range(200, 400))
    children = [item for item in service.shards() if item.get("ParentShardId")]
    service.merge(children[0], children[1])
    service.send(range(400, 600))
    assert numbers(drained(spark, KinesisSource(service.connection), read)) == list(range(400, 600))
    assert [lag.rows for lag in source.lag(read, last_offsets(read))] == [0, 0]
    assert source.lost(read, last_offsets(read)) == []


def last_offsets(read: StreamRead) -> Any:
    folder = Path(read.checkpoint, "spark", "offsets")
    newest = max((int(item.name) for item in folder.iterdir() if item.name.isdigit()), default=-1)
    return json.loads((folder / str(newest)).read_text().splitlines()[2])


@pytest.fixture
def timed() -> Iterator[Service]:
    """moto's Kinesis: the other emulator never answers a request for what comes after a moment when nothing does, and its
    records cannot be made old."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield Service(f"http://{host}:{port}")
    server.stop()


@pytest.mark.full
def test_a_stream_begins_at_its_start(spark: Any, timed: Service, tmp_path: Path) -> None:
    service = timed
    service.send(range(10))
    time.sleep(1.1)
    source, moment = KinesisSource(service.connection), datetime.now(timezone.utc)
    time.sleep(0.1)
    latest = reading(tmp_path, checkpoint="latest", start="latest")
    assert drained(spark, source, latest) == []
    service.send(range(10, 20))
    assert numbers(drained(spark, source, latest)) == list(range(10, 20))
    since = json.dumps(source.offsets_at(latest, moment))
    assert numbers(drained(spark, source, reading(tmp_path, checkpoint="since", start=since))) == list(range(10, 20))
    with pytest.raises(PlanError, match="cannot start at 'tomorrow'"):
        source.check(reading(tmp_path, start="tomorrow"))


@pytest.mark.full
@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_the_first_batch_of_all_is_the_same_when_it_is_done_again(
    spark: Any, timed: Service, tmp_path: Path, start: str
) -> None:
    """Spark asks anew where it begins, and `latest` would be another moment by then."""
    source, read = KinesisSource(timed.connection), reading(tmp_path, start=start)
    frame = source.frame(spark, read)
    time.sleep(1.1)
    timed.send(range(10))

    def dies(*_: Any) -> None:
        raise RuntimeError("before anything was written")

    place = str(Path(read.checkpoint, "spark"))
    query = frame.writeStream.foreachBatch(dies).option("checkpointLocation", place).trigger(availableNow=True).start()
    with pytest.raises(Exception, match="before anything was written"):
        query.awaitTermination()
    time.sleep(0.1)
    assert numbers(drained(spark, source, read)) == list(range(10))


@pytest.mark.full
def test_a_micro_batch_is_bounded_and_nothing_is_left_out(service: Service) -> None:
    service.send(range(100))
    reader = KinesisReader(
        KinesisReaderSettings(KinesisLogin.of(service.connection), ShardPositions(ShardPosition(), {}), max_rows=20)
    )
    before, found = reader.initialOffset(), []
    for _ in range(30):
        after = reader.latestOffset()
        parts = reader.partitions(before, after)
        rows = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
        assert len(rows) <= 20
        found += rows
        before = after
    assert sorted(json.loads(row["value"])["n"] for row in found) == list(range(100))


def test_children_wait_for_their_parents() -> None:
    shards = [Shard("a"), Shard("b", ("a",)), Shard("c", ("a",)), Shard("d", ("b", "c")), Shard("e", ("gone",))]
    standing = ShardPositions(ShardPosition(), {}).with_new_shards(shards)
    assert sorted(standing.positions) == ["a", "e"]
    standing = standing.with_position("a", ShardPosition("7").ended()).with_new_shards(shards)
    assert standing.open_shards == ["b", "c", "e"]
    standing = standing.with_position("b", ShardPosition("8").ended()).with_new_shards(shards)
    assert "d" not in standing.positions
    standing = standing.with_position("c", ShardPosition().ended()).with_new_shards(shards)
    assert standing.open_shards == ["d", "e"]
    assert ShardPositions.of(standing.to_checkpoint()) == standing
    assert sorted(standing.with_new_shards(shards[3:]).positions) == ["d", "e"]


@pytest.mark.full
def test_an_iterator_that_expired_is_asked_for_again(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    service.send(range(50))
    plain, expired = KinesisClient.records, iter([True, False] * 50)

    def records(self: KinesisClient, iterator: str, *, most: int = 5) -> Any:
        if next(expired):
            raise IteratorExpired("too old")
        return plain(self, iterator, most=5)

    reader = KinesisReader(
        KinesisReaderSettings(KinesisLogin.of(service.connection), ShardPositions(ShardPosition(), {}), drains=True)
    )
    end = reader.latestOffset()
    monkeypatch.setattr(KinesisClient, "records", records)
    parts = reader.partitions(reader.initialOffset(), end)
    rows = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
    assert sorted(json.loads(row["value"])["n"] for row in rows) == list(range(50))


@pytest.mark.full
def test_throttled_requests_are_repeated_and_refused_records_sent_again(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    from botocore.exceptions import ClientError

    client, pauses = KinesisClient(KinesisLogin.of(service.connection)), list[int]()
    monkeypatch.setattr(client_module, "backoff_seconds", pauses.append)
    real = client._client
    throttled = ClientError(
        {"Error": {"Code": "ProvisionedThroughputExceededException", "Message": "slow"}}, "GetRecords"
    )

    class Busy:
        answers = 0

        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

        def list_shards(self, **asked: Any) -> Any:
            Busy.answers += 1
            if Busy.answers < 3:
                raise throttled
            return real.list_shards(**asked)

        def put_records(self, **asked: Any) -> Any:
            taken = asked["Records"][: len(asked["Records"]) // 2 + 1]
            told = real.put_records(StreamName=asked["StreamName"], Records=taken)
            refused = [{"ErrorCode": "ProvisionedThroughputExceededException"}] * (len(asked["Records"]) - len(taken))
            return {"Records": told["Records"] + refused}

    monkeypatch.setattr(client_module, "_client", lambda *_: Busy())
    assert len(client.shards()) == 2
    assert pauses == [1, 2]
    assert client.put([(f"k{n}", b"%d" % n) for n in range(20)]) == 20
    monkeypatch.undo()
    reader = KinesisReader(
        KinesisReaderSettings(KinesisLogin.of(service.connection), ShardPositions(ShardPosition(), {}), drains=True)
    )
    parts = reader.partitions(reader.initialOffset(), reader.latestOffset())
    values = [row["value"] for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
    assert sorted(map(int, values)) == list(range(20))


@pytest.mark.full
def test_records_that_are_no_longer_kept_stop_the_stream(service: Service) -> None:
    service.send(range(5))
    shard = service.shards()[0]["ShardId"]
    beyond = ShardRange(shard, "TRIM", "9" * 57)
    with pytest.raises(PlanError, match="no longer keeps records"):
        list(read_part(_ending(KinesisClient(KinesisLogin.of(service.connection))), beyond))


@pytest.mark.full
def test_records_that_expired_while_a_stream_stood_still_stop_it(spark: Any, service: Service, tmp_path: Path) -> None:
    """As after a stop for longer than the retention: the checkpoint stands behind a record that is gone."""
    source, read = KinesisSource(service.connection), reading(tmp_path)
    service.send(range(20))
    assert len(numbers(drained(spark, source, read))) == 20
    assert drained(spark, source, read) == []
    before = {shard["ShardId"]: shard["SequenceNumberRange"]["StartingSequenceNumber"] for shard in service.shards()}
    _stand_at(read, before)
    with pytest.raises(PlanError, match=r"no longer keeps everything that events has not read \(s-.*kept from \d+ on"):
        drained(spark, source, read)
    assert {item.part for item in source.lost(read, before)} == {f"{service.name}-{shard}" for shard in before}


@pytest.mark.full
def test_a_shard_that_was_quiet_for_long_raises_no_alarm(service: Service, tmp_path: Path) -> None:
    """Its last record expired, and nobody sent another while the stream looked."""
    source, read = KinesisSource(service.connection), reading(tmp_path)
    before = {shard["ShardId"]: shard["SequenceNumberRange"]["StartingSequenceNumber"] for shard in service.shards()}
    assert source.lost(read, before) == []  # nothing is kept, and nothing can be shown to be lost
    assert [lag.rows for lag in source.lag(read, before)] == [0, 0]
    service.send(range(20))
    assert source.lost(read, before) == []
    note = tmp_path / "checkpoint" / "kinesis_ends.json"
    noted = {shard: [at, seen - 25 * 3600] for shard, (at, seen) in json.loads(note.read_text()).items()}
    note.write_text(json.dumps(noted))
    assert len(source.lost(read, before)) == 2


def held(service: Service) -> dict[str, Any]:
    """The records that moto holds, shard by shard."""
    from moto.kinesis.models import kinesis_backends

    shards = kinesis_backends["123456789012"][REGION].streams[service.name].shards
    return {name: shard.records for name, shard in shards.items()}


def aged(service: Service, hours: float) -> None:
    """As if everything had been sent so long ago."""
    for records in held(service).values():
        for record in records.values():
            record.created_at_datetime -= timedelta(hours=hours)
            record.created_at -= hours * 3600


def expire(service: Service, least: int) -> None:
    """As if the records before a number had been there for longer than the retention."""
    for records in held(service).values():
        for number in [number for number in records if number < least]:
            del records[number]


def consumed(service: Service, folder: Path, **fields: Any) -> Any:
    target = SQLiteConnection("shop", path=str(folder / "shop.db"))
    return run_streaming_pipeline(
        name="events", source=service.connection, source_query=service.name, target=target, target_table=("main", "events"),
        checkpoint=str(folder / "checkpoint"), max_rows_per_batch=10, **fields,
    )  # fmt: skip


def loaded(folder: Path) -> list[int]:
    with closing(sqlite3.connect(folder / "shop.db")) as connection:
        return sorted(row[0] for row in connection.execute("SELECT n FROM events"))


@pytest.mark.full
def test_records_that_expire_before_a_running_stream_comes_to_them_stop_it(timed: Service, tmp_path: Path) -> None:
    """It is behind by nearly the retention when it begins, and the next records are gone when it comes to them."""
    timed.send(range(60))
    aged(timed, 23.9)

    def drop() -> None:
        while not (tmp_path / "checkpoint" / "spark" / "commits" / "0").exists():
            time.sleep(0.05)
        expire(timed, 10)

    threading.Thread(target=drop, daemon=True).start()
    restarts = {"restart_on_error": True, "initial_backoff_ms": 1, "trigger": "20 seconds"}
    with pytest.raises(PlanError, match=rf"not read \({timed.name}-.*: behind 5, kept from 10 on\)") as refused:
        consumed(timed, tmp_path, **restarts)
    assert "flow stream rewind events --to earliest" in str(refused.value.hint)
    with pytest.raises(PlanError, match="behind 5, kept from 10 on"):
        consumed(timed, tmp_path, **restarts)
    assert len(loaded(tmp_path)) == 10


@pytest.mark.full
def test_a_stream_that_is_far_behind_goes_on_while_everything_is_kept(timed: Service, tmp_path: Path) -> None:
    timed.client.increase_stream_retention_period(StreamName=timed.name, RetentionPeriodHours=168)
    timed.send(range(60))
    aged(timed, 100)
    assert consumed(timed, tmp_path, once=True).total_rows == 60
    timed.send(range(60, 80))
    aged(timed, 50)
    expire(timed, 20)
    assert consumed(timed, tmp_path, once=True).total_rows == 20
    assert loaded(tmp_path) == list(range(80))


@pytest.mark.full
def test_records_that_expire_before_a_task_reads_them_stop_the_stream(timed: Service) -> None:
    timed.send(range(60))
    aged(timed, 23.9)
    reader = KinesisReader(
        KinesisReaderSettings(KinesisLogin.of(timed.connection), ShardPositions(ShardPosition(), {}), max_rows=10)
    )
    first, second = reader.latestOffset(), reader.latestOffset()
    expire(timed, 8)
    part = reader.partitions(first, second)[0]
    with pytest.raises(Exception, match=r"no longer keeps records of shardId-0+0 that the stream has not read"):
        list(reader.read(part))
    again = KinesisReader(
        KinesisReaderSettings(
            KinesisLogin.of(timed.connection), ShardPositions(ShardPosition(), {}), reached=ShardPositions.of(second)
        )
    )
    with pytest.raises(Exception, match="behind 5, kept from 8 on"):
        again.partitions(first, second)


@pytest.mark.full
def test_a_running_stream_that_saw_the_end_of_a_quiet_shard_raises_no_alarm(timed: Service) -> None:
    timed.send(range(60))
    aged(timed, 23.9)
    reader = KinesisReader(
        KinesisReaderSettings(KinesisLogin.of(timed.connection), ShardPositions(ShardPosition(), {}))
    )
    for _ in range(2):  # the second look finds nothing, and notes when
        first = reader.latestOffset()
    ends = {name: max(records) for name, records in held(timed).items()}
    timed.send(range(60, 100))
    for name, last in ends.items():
        for number in [number for number in held(timed)[name] if number <= last]:
            del held(timed)[name][number]
    parts = reader.partitions(first, reader.latestOffset())
    rows = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
    assert sorted(json.loads(row["value"])["n"] for row in rows) == list(range(60, 100))


@pytest.mark.full
def test_a_shard_that_is_gone_before_it_was_read_is_missed() -> None:
    shards = [Shard("a"), Shard("b", ("a",)), Shard("c", ("b",))]
    begun = ShardPositions(ShardPosition(), {}).with_new_shards(shards).with_position("a", ShardPosition("7"))
    assert begun.missed_shards(shards) == {}
    assert begun.missed_shards(shards[1:]) == {"a": ShardPosition("7"), "b": ShardPosition()}
    assert begun.missed_shards([shards[0], shards[2]]) == {"b": ShardPosition()}
    ended = begun.with_position("a", ShardPosition("7").ended())
    assert ended.missed_shards(shards[1:]) == {"b": ShardPosition()}
    assert ended.with_new_shards(shards).missed_shards(shards[1:]) == {}
    assert ShardPositions(ShardPosition(), {}).missed_shards(shards[2:]) == {}


def _stand_at(read: StreamRead, positions: dict[str, str]) -> None:
    """As if the last micro-batch had ended there."""
    offsets = Path(read.checkpoint, "spark", "offsets")
    last = max(offsets.iterdir(), key=lambda path: int(path.name) if path.name.isdigit() else -1)
    version, about, _ = last.read_text().splitlines()
    last.write_text("\n".join([version, about, json.dumps({"*": "TRIM", **positions})]))
    (offsets / f".{last.name}.crc").unlink(missing_ok=True)


def _ending(client: KinesisClient) -> Any:
    """A shard that ends where the service has nothing more."""

    class Ending:
        access = client.access

        def iterator(self, shard: str, position: ShardPosition) -> str:
            return client.iterator(shard, position)

        def records(self, iterator: str) -> Any:
            got = client.records(iterator)
            return got if got.records else type(got)([], None, 0)

    return Ending()


@pytest.mark.full
def test_rows_become_records_with_their_keys(spark: Any, service: Service) -> None:
    sink = KinesisSink(service.connection)
    sink.check("eu-")
    rows = [(None if n % 2 else b"key-%d" % n, b'{"n": %d}' % n, None) for n in range(1200)]
    frame = spark.createDataFrame(rows, "key BINARY, value BINARY, headers ARRAY<STRUCT<key: STRING, value: BINARY>>")
    job = BrokerJob("events", "events@1::eu-", 7, "eu-")
    assert sink.send(job, frame.repartition(3)) == 1200
    reader = KinesisReader(
        KinesisReaderSettings(KinesisLogin.of(service.connection), ShardPositions(ShardPosition(), {}), drains=True)
    )
    parts = reader.partitions(reader.initialOffset(), reader.latestOffset())
    found = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
    assert sorted(json.loads(row["value"])["n"] for row in found) == list(range(1200))
    keys = {json.loads(row["value"])["n"]: row["key"].decode() for row in found}
    assert keys[4] == "eu-key-4"
    assert keys[5].startswith("eu-events@1::eu-/7/")
    large = spark.createDataFrame([(b"k", b"x" * (1024**2 + 1), None)], frame.schema)
    with pytest.raises(Exception, match="more than Kinesis stream"):
        sink.send(job, large)


def test_what_is_wrong_is_one_sentence(service: Service, tmp_path: Path) -> None:
    with pytest.raises(MissingTable, match="'nothing-here' at http"):
        KinesisSource(service.connection).check(reading(tmp_path, query="nothing-here"))
    down = KinesisConnection("events", stream_name="s", region=REGION, endpoint="http://127.0.0.1:1", **ACCESS)
    with pytest.raises(Unreachable, match="does not answer") as refused:
        KinesisSource(down).check(reading(tmp_path))
    assert ACCESS["secret_access_key"] not in str(refused.value)
    assert ACCESS["secret_access_key"] not in repr(KinesisLogin.of(service.connection))


def test_a_notebook_reads_writes_commits_and_goes_back(service: Service) -> None:
    with KinesisBackend.open(
        service.name, region=REGION, endpoint=service.url, max_empty_polls=2, idle_poll_ms=20, batch_size=100, **ACCESS
    ) as backend:
        assert backend.ping()
        batch = pa.record_batch({"n": list(range(150)), "word": [f"w{n}" for n in range(150)]})
        assert backend.write_arrow_stream("k", [batch]) == 150
        found = backend.read_arrow_stream(service.name)
        assert sorted(n for item in found for n in item.column("n").to_pylist()) == list(range(150))
        assert backend.pending_sequence_count() == 150
        backend.reset_to_committed_offsets()
        again = list(backend.iter_arrow_stream())
        assert sum(item.num_rows for item in again) == 150
        backend.commit_offsets()
        assert backend.pending_sequence_count() == 0
        assert backend.read_arrow_stream() == []
        with pytest.raises(BadValue, match="1 MiB"):
            backend.write_arrow_stream("k", [pa.record_batch({"x": ["y" * (1024**2)]})])
        assert ACCESS["secret_access_key"] not in repr(backend)


def test_a_notebook_has_a_position_in_every_stream(timed: Service) -> None:
    """Shards of two streams have the same names."""
    other = Service(timed.url)
    timed.send(range(50))
    other.send(range(50, 60))
    with KinesisBackend.open(
        timed.name, region=REGION, endpoint=timed.url, max_empty_polls=2, idle_poll_ms=20, **ACCESS
    ) as backend:

        def read(stream: str) -> list[int]:
            return sorted(n for item in backend.read_arrow_stream(stream) for n in item.column("n").to_pylist())

        assert read("") == list(range(50))
        backend.commit_offsets()
        assert read(other.name) == list(range(50, 60))
        assert read(timed.name) == []
        backend.reset_to_committed_offsets()
        assert read(other.name) == list(range(50, 60))
        assert read("") == []


@pytest.mark.full
def test_what_a_notebook_could_not_decode_is_never_committed(service: Service) -> None:
    with KinesisBackend.open(
        service.name, region=REGION, endpoint=service.url, max_empty_polls=2, idle_poll_ms=20, **ACCESS
    ) as backend:
        backend.write_arrow_stream("k", [pa.record_batch({"n": [1]})])
        assert sum(item.num_rows for item in backend.iter_arrow_stream()) == 1
        KinesisClient(KinesisLogin.of(service.connection)).put([("k", b"not json")])
        for _ in range(2):
            with pytest.raises(BadValue, match="is not JSON"):
                backend.read_arrow_stream()
            backend.commit_offsets()
        assert backend.pending_sequence_count() == 0
