"""Kafka as the target of a stream, against a real broker: at least once, and exactly once under kill -9."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ematix_flow.backends.kafka.login import KafkaLogin
from ematix_flow.backends.kafka.sink import KafkaSink
from ematix_flow.backends.kafka.transactions import TransactionSettings, transaction_task
from ematix_flow.contract.stream import BrokerJob
from ematix_flow.dataplane.task_errors import CarriedError
from ematix_flow.engine.session.session import spark_session
from ematix_flow.foundation.errors import BadValue, FlowError, MissingTable, PlanError, RunFailed
from ematix_flow.messages.message_ids import COLUMNS, with_ids
from tests.services.kafka import Kafka
from tests.streams.kafka_session import open_kafka, scram
from tests.streams.kafka_topics import everything, group_offsets, new_topic, send, values

ROOT = Path(__file__).resolve().parents[2]
ROWS = 12_000


@pytest.fixture(scope="module")
def spark(every_jar: None) -> Any:
    return spark_session()


def messages(spark: Any, rows: int, *, topic: str | None = None) -> Any:
    """Keys, values and headers; with a topic, where they come from, too."""
    made = [
        "CAST(concat('k', id % 7) AS BINARY) AS key",
        "CAST(CAST(id AS STRING) AS BINARY) AS value",
        "array(named_struct('key', 'n', 'value', CAST(CAST(id AS STRING) AS BINARY))) AS headers",
    ]
    if topic is not None:
        made += [f"'{topic}' AS topic", "CAST(spark_partition_id() AS INT) AS partition"]
    return spark.range(0, rows, 1, 2).selectExpr(*made)


def job(topic: str, *, batch: int = 0, source: str = "", ends: int = 100, writer: str = "w@1::t") -> BrokerJob:
    told = {source: {"0": ends, "1": ends}} if source else {}
    return BrokerJob("copy", writer, batch, topic, exactly_once=bool(source), group="tests", ends=told)


@pytest.mark.full
def test_rows_arrive_with_keys_and_headers_and_are_counted(kafka: Kafka, spark: Any) -> None:
    topic = new_topic(kafka, partitions=3)
    assert KafkaSink(open_kafka(kafka)).send(job(topic), messages(spark, 50)) == 50
    found = {message.value(): message for message in everything(kafka, topic)}
    assert len(found) == 50
    assert (found[b"9"].key(), found[b"9"].headers()[0]) == (b"k2", ("n", b"9"))
    assert KafkaSink(scram(kafka)).send(job(topic), messages(spark, 0)) == 0


@pytest.mark.full
def test_sending_leaves_files_as_they_are_read(kafka: Kafka, spark: Any, tmp_path: Path) -> None:
    """What Kafka's writer needs of the session is no concern of others: a row still knows its file."""
    spark.conf.unset("spark.sql.sources.useV1SourceList")
    KafkaSink(open_kafka(kafka)).send(job(new_topic(kafka)), messages(spark, 1))
    (tmp_path / "one.txt").write_text("a line\n")
    assert spark.read.text(f"file:{tmp_path}").selectExpr("_metadata.file_name").collect()[0][0] == "one.txt"


def test_a_batch_that_is_sent_again_at_least_once_carries_the_same_ids(kafka: Kafka, spark: Any) -> None:
    """Also in another order; and messages that are equal are not the same one."""
    topic, sink = new_topic(kafka), KafkaSink(open_kafka(kafka))
    rows = spark.range(0, 40, 1, 2).selectExpr(
        "CAST(NULL AS BINARY) AS key", "CAST(CAST(id DIV 2 AS STRING) AS BINARY) AS value", "NULL AS headers"
    )
    for batch, frame in ((0, rows), (0, rows.sortWithinPartitions("value")), (1, rows)):
        assert sink.send(job(topic, batch=batch), frame) == 40
    ids = Counter(dict(message.headers())["ematix-message-id"] for message in everything(kafka, topic))
    assert sorted(ids.values()) == [1] * 40 + [2] * 40
    assert {name.split(b"/")[1] for name, times in ids.items() if times == 2} == {b"0"}


def test_a_key_is_not_taken_for_a_value(spark: Any) -> None:
    """Equal messages of a task are numbered in the order in which they come, and that order may change."""
    rows = spark.createDataFrame([(b"a", None, None), (None, b"a", None)], "key BINARY, value BINARY, headers STRING")
    sent = with_ids(rows.selectExpr("key", "value", COLUMNS[2].replace("headers", "NULL", 1)).coalesce(1), job("t"))
    ids = [bytes(row.headers[-1].value).decode() for row in sent.collect()]
    assert len({one.rpartition("-")[0] for one in ids}) == 2
    assert {len(one.split("-")[-2]) for one in ids} == {32}


@pytest.mark.full
def test_both_ways_choose_the_same_partition_for_a_key(kafka: Kafka, spark: Any) -> None:
    source = new_topic(kafka, partitions=2)
    by_spark, by_transactions = (new_topic(kafka, partitions=5) for _ in range(2))
    sink = KafkaSink(open_kafka(kafka))
    sink.send(job(by_spark), messages(spark, 40))
    sink.send(job(by_transactions, source=source), messages(spark, 40, topic=source))
    places = [{m.key(): m.partition() for m in everything(kafka, topic)} for topic in (by_spark, by_transactions)]
    assert places[0] == places[1]


def test_a_batch_that_is_sent_again_changes_nothing(kafka: Kafka, spark: Any) -> None:
    source, topic = new_topic(kafka, partitions=2), new_topic(kafka)
    rows = messages(spark, 30, topic=source)
    for _ in range(3):  # each time as another process would
        assert KafkaSink(open_kafka(kafka)).send(job(topic, source=source), rows) == 30
    once = Counter(b"%d" % n for n in range(30))
    assert values(kafka, topic) == once
    KafkaSink(open_kafka(kafka)).send(job(topic, batch=1, source=source, ends=200), rows)
    assert values(kafka, topic) == once + once
    KafkaSink(open_kafka(kafka)).send(job(topic, batch=1, source=source, ends=200), rows)
    KafkaSink(open_kafka(kafka)).send(job(topic, batch=0, source=source), rows)
    assert values(kafka, topic) == once + once
    KafkaSink(open_kafka(kafka)).send(job(topic, source=source, writer="w@2::t"), rows)  # a new checkpoint
    assert values(kafka, topic) == once + once + once


@pytest.mark.full
def test_a_batch_that_was_planned_anew_is_not_taken_for_the_old_one(kafka: Kafka, spark: Any) -> None:
    source, topic = new_topic(kafka, partitions=2), new_topic(kafka)
    KafkaSink(open_kafka(kafka)).send(job(topic, source=source), messages(spark, 10, topic=source))
    with pytest.raises(RunFailed, match=r"was sent up to .*@100, and now ends at 150"):
        KafkaSink(open_kafka(kafka)).send(job(topic, source=source, ends=150), messages(spark, 10, topic=source))
    assert sum(values(kafka, topic).values()) == 10


@pytest.mark.full
@pytest.mark.parametrize(
    "moved",
    [
        "SELECT max(key) AS key, value, first(headers) AS headers, topic, partition FROM {rows} GROUP BY ALL",
        "SELECT * FROM {rows} ORDER BY value",
        "SELECT /*+ REPARTITION(4) */ * FROM {rows}",
        "SELECT /*+ COALESCE(1) */ * FROM {rows}",
    ],
)
def test_rows_that_a_transform_moved_are_refused_before_any_is_sent(kafka: Kafka, spark: Any, moved: str) -> None:
    source, topic = new_topic(kafka, partitions=2), new_topic(kafka)
    rows = spark.sql(moved, rows=messages(spark, 30, topic=source))
    with pytest.raises(PlanError, match="moves rows between tasks"):
        KafkaSink(open_kafka(kafka)).send(job(topic, source=source), rows)
    assert everything(kafka, topic, isolation="read_uncommitted") == []


@pytest.mark.full
def test_a_lookup_and_a_filter_leave_rows_where_they_are(kafka: Kafka, spark: Any) -> None:
    source, topic = new_topic(kafka, partitions=2), new_topic(kafka)
    known = spark.range(5).selectExpr("CAST(concat('k', id) AS BINARY) AS key", "id AS known")
    rows = spark.sql(
        "SELECT r.* FROM {rows} AS r JOIN {known} AS k ON r.key = k.key WHERE known <> 3",
        rows=messages(spark, 70, topic=source), known=known,
    )  # fmt: skip
    assert KafkaSink(open_kafka(kafka)).send(job(topic, source=source), rows) == 40
    assert sum(values(kafka, topic).values()) == 40


@pytest.mark.full
def test_rows_of_several_partitions_in_one_task_are_refused_and_none_is_seen(kafka: Kafka, spark: Any) -> None:
    source, topic = new_topic(kafka, partitions=2), new_topic(kafka)
    mixed = messages(spark, 40, topic=source).selectExpr(
        "key", "value", "headers", "topic", "CAST(CAST(CAST(value AS STRING) AS INT) % 2 AS INT) AS partition"
    )
    with pytest.raises(PlanError, match="needs them apart"):
        KafkaSink(open_kafka(kafka)).send(job(topic, source=source), mixed)
    assert everything(kafka, topic) == []


@pytest.mark.full
def test_a_partition_in_several_tasks_is_refused(kafka: Kafka, spark: Any) -> None:
    source, topic = new_topic(kafka, partitions=2), new_topic(kafka)
    divided = messages(spark, 40, topic=source).selectExpr("key", "value", "headers", "topic", "0 AS partition")
    with pytest.raises((RunFailed, FlowError), match=r"several tasks|taken over"):
        KafkaSink(open_kafka(kafka)).send(job(topic, source=source), divided)


def test_what_cannot_be_sent_is_one_sentence(kafka: Kafka, spark: Any) -> None:
    source, topic = new_topic(kafka, partitions=2), new_topic(kafka, name=None, **{"max.message.bytes": "2000"})
    sink = KafkaSink(open_kafka(kafka))
    long = messages(spark, 4, topic=source).selectExpr(
        "key", "CAST(repeat(CAST(value AS STRING), 4000) AS BINARY) AS value", "headers", "topic", "partition"
    )
    with pytest.raises(BadValue, match=r"is larger than kafka:.* takes"):
        sink.send(job(topic, source=source), long)
    with pytest.raises(BadValue, match=r"is larger than kafka:.* takes"):
        sink.send(job(topic), long)
    assert everything(kafka, topic) == []
    with pytest.raises(MissingTable, match="did you mean"):
        sink.check(f"{topic}x")
    sink.check(topic)
    with pytest.raises(PlanError, match="no transaction spans two clusters"):
        sink.send(job(topic, source="elsewhere"), messages(spark, 4, topic="elsewhere"))


def test_a_producer_that_was_thought_dead_cannot_commit_any_more(kafka: Kafka) -> None:
    source, topic = new_topic(kafka), new_topic(kafka)

    def by(attempt: str) -> Any:
        settings = KafkaLogin.of(open_kafka(kafka)).for_librdkafka()
        return transaction_task(
            TransactionSettings(settings=settings, label="kafka", stream="copy", writer="w@1::t", batch=0, place=topic,
                     group="fenced", ends={source: {"0": 2}}, attempt=attempt, driver=os.getpid())
        )  # fmt: skip

    def row(n: int) -> pa.RecordBatch:
        headers = pa.array([None], pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()})))
        columns = {"key": [None], "value": [b"%d" % n], "headers": headers, "topic": [source], "partition": [0]}
        return pa.RecordBatch.from_pydict(columns)

    def stalled() -> Iterator[pa.RecordBatch]:
        yield row(0)
        list(by("the next runner")(iter([row(0), row(1)])))
        yield row(1)

    with pytest.raises(CarriedError, match=r"LeaseLost.*has taken over"):
        list(by("the one that stalled")(stalled()))
    assert values(kafka, topic) == Counter([b"0", b"1"])


def copy(kafka: Kafka, folder: Path, source: str, topic: str, *, fault: str | None) -> subprocess.CompletedProcess[str]:
    """The pipeline of kafka_copy.py in a process of its own."""
    environment = {
        **os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "COPY_SERVERS": kafka.open, "COPY_FROM": source,
        "COPY_TO": topic, "COPY_CHECKPOINT": str(folder / "checkpoint"), "COPY_ROWS": str(ROWS // 2),
        "EMATIX_FLOW_RUN_LOG_PATH": str(folder / "runs.db"), "EMATIX_FLOW_LOGS_DIR": str(folder), "EMATIX_FLOW_FAULT": fault or "",
    }  # fmt: skip
    command = [sys.executable, "-m", "tests.streams.kafka_copy"]
    return subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=400, check=False)


@pytest.mark.full("half a minute a process; tests/crash kills streams at the other points")
def test_a_pipeline_that_is_killed_inside_its_transactions_delivers_exactly_once(kafka: Kafka, tmp_path: Path) -> None:
    source, topic = new_topic(kafka, partitions=2), new_topic(kafka, partitions=2)
    send(kafka, source, [{"value": b'{"n": %d}' % n, "partition": n % 2} for n in range(ROWS)])
    whole = Counter(b'{"n":%d,"twice":%d}' % (n, 2 * n) for n in range(ROWS))
    for point in ("mid_stage", "before_commit", "between_commits"):
        killed = copy(kafka, tmp_path, source, topic, fault=point)
        assert killed.returncode == -signal.SIGKILL, f"{point}: {killed.stderr}"
        seen = values(kafka, topic)
        assert seen <= whole, point
        for partition in (0, 1):  # a partition of a batch is seen wholly or not at all
            assert sum(json.loads(value)["n"] % 2 == partition for value in seen) % (ROWS // 4) == 0, point
        if point != "between_commits":  # sent, and never to be seen
            assert values(kafka, topic, isolation="read_uncommitted") - seen, point
    done = copy(kafka, tmp_path, source, topic, fault=None)
    assert done.returncode == 0, done.stderr
    assert values(kafka, topic) == whole
    assert group_offsets(kafka, "copies") == {f"{source}-{number}": ROWS // 2 for number in (0, 1)}
