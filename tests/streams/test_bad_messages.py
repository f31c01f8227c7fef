"""Bad messages between brokers: too large, without a form, half sent by a try that died, and read once more."""

from __future__ import annotations

import json
import secrets
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from ematix_flow import (
    KafkaConnection,
    ObjectStoreLocalConnection,
    SchemaRegistryConnection,
    Target,
    register_connection,
)
from ematix_flow.foundation.errors import BadValue, FlowError
from ematix_flow.storage.paths import STATE_FOLDER
from ematix_flow.streaming.admin import rewind
from ematix_flow.streaming.dlq import service
from ematix_flow.streaming.dlq.dead_letter import LetterSelection
from ematix_flow.streaming.runtime.batch_barrier import BatchBarrier
from ematix_flow.streaming.runtime.opening import open_stream
from tests.services.kafka import Kafka
from tests.streams.kafka_session import open_kafka
from tests.streams.kafka_topics import everything, new_topic, send
from tests.streams.operated import GOOD, declared, orders, rows, run, shop

pytestmark = pytest.mark.usefixtures("homes", "every_jar")
FIRST = "SELECT n, CAST(10 / d AS BIGINT) AS v FROM source"
SECOND = "SELECT n, CAST(10 / (d - 5) AS BIGINT) AS v FROM source"


def numbers(kafka: Kafka, topic: str) -> list[int]:
    return sorted(json.loads(message.value())["n"] for message in everything(kafka, topic))


def letters(spec: Any) -> list[tuple[int, str, str | None]]:
    found = service.list_letters(spec, bodies=True)
    return sorted((json.loads(one.payload or b"")["n"], one.stage, one.target) for one in found)


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_a_message_that_is_too_large_for_the_topic_is_set_aside(kafka: Kafka, delivery: str) -> None:
    source, topic = new_topic(kafka), new_topic(kafka, **{"max.message.bytes": "2000"})
    send(
        kafka, source, [{"value": json.dumps({"n": n, "t": "x" * size})} for n, size in ((1, 5), (2, 9000), (3, 1200))]
    )
    spec = declared(
        name="copy", source=open_kafka(kafka), source_query=source, target=open_kafka(kafka), target_topic=topic,
        transform_on_error="dlq", delivery=delivery,
    )  # fmt: skip
    assert run(spec).total_rows == 3
    assert numbers(kafka, topic) == [1, 3]
    (letter,) = service.list_letters(spec)
    assert (letter.stage, letter.target) == ("write", topic)
    assert "bytes, and" in letter.error


@pytest.mark.full
def test_a_row_that_no_message_can_be_made_of_is_set_aside(kafka: Kafka, schema_registry: str) -> None:
    name = f"schemas_{secrets.token_hex(4)}"
    register_connection(SchemaRegistryConnection(name, url=schema_registry))
    source, topic = new_topic(kafka), new_topic(kafka)
    send(kafka, source, [{"value": json.dumps({"n": n})} for n in (1, 2_000_000_000_000, 3)])
    there = KafkaConnection(
        "proto", bootstrap_servers=kafka.open, payload_format="protobuf", schema_registry=name
    )  # fmt: skip
    said = {
        "name": "copy", "source": open_kafka(kafka), "source_query": source, "target": there, "target_topic": topic,
        "transform_sql": "SELECT n, timestamp_seconds(n) AS at FROM source",
    }  # fmt: skip
    with pytest.raises(BadValue, match="cannot be written as Protobuf"):
        run(declared(**said))
    spec = declared(**said, transform_on_error="dlq")
    run(spec)
    assert len(everything(kafka, topic)) == 2
    assert letters(spec) == [(2_000_000_000_000, "write", topic)]


@pytest.mark.full
def test_what_was_sent_of_a_batch_keeps_the_letters_it_was_sent_without(kafka: Kafka, tmp_path: Path) -> None:
    source, topic = new_topic(kafka, partitions=2), new_topic(kafka)
    of_both = [(1, 1, 0), (2, 0, 0), (3, 5, 0), (4, 1, 1), (5, 0, 1), (6, 5, 1)]
    send(kafka, source, [{"value": json.dumps({"n": n, "d": d}), "partition": part} for n, d, part in of_both])
    lake = ObjectStoreLocalConnection("lake", path=str(tmp_path / "lake"), format="csv")
    blocked = tmp_path / "lake" / STATE_FOLDER / "locks"
    blocked.parent.mkdir(parents=True)
    blocked.write_text("not a folder")

    def spec(sql: str) -> Any:
        targets = [Target(connection=lake, prefix="raw/n"), Target(connection=open_kafka(kafka), topic=topic)]
        return declared(
            name="copy", source=open_kafka(kafka), source_query=source, targets=targets, transform_sql=sql,
            transform_on_error="dlq", delivery="exactly_once",
        )  # fmt: skip

    with pytest.raises(FlowError, match="locks"):
        run(spec(FIRST))
    assert letters(spec(FIRST)) == [(2, "transform", None), (5, "transform", None)]
    _send_first_partition(spec(FIRST), source)
    assert numbers(kafka, topic) == [1, 3]
    blocked.unlink()
    run(spec(SECOND))
    assert numbers(kafka, topic) == [1, 3, 4, 5]
    lines = [line for file in (tmp_path / "lake" / "raw").rglob("*.csv") for line in file.read_text().splitlines()[1:]]
    assert sorted(int(line.split(",")[0]) for line in lines) == [1, 2, 4, 5]
    assert letters(spec(SECOND)) == [(2, "transform", topic), (3, "transform", "raw/n"), (6, "transform", None)]


def _send_first_partition(spec: Any, source: str) -> None:
    """As a try would have done that died between two of its transactions."""
    opened = open_stream(spec, BatchBarrier(), still_ours=lambda: None, once=True)
    try:
        sent = opened.spark.range(0, 2, 1, 1).selectExpr(
            "1 + 2 * id AS n", "IF(id = 0, 10L, 2L) AS v",
            f"named_struct('topic', '{source}', 'partition', 0, 'offset', 2 * id) AS _source",
        )  # fmt: skip
        target = opened.work.targets[1]
        with ExitStack() as open_until:
            fitted = target.fit(sent, open_until, splits=False)
            assert target.begin(0).stage(fitted.frame).publish().counts.read == 2
    finally:
        opened.close()


@pytest.mark.proves("a target that was left behind gets what it missed later")
@pytest.mark.full
def test_a_target_that_comes_back_gets_what_it_missed_before_the_next_micro_batch(kafka: Kafka, tmp_path: Path) -> None:
    source = new_topic(kafka)
    lake = ObjectStoreLocalConnection("lake", path=str(tmp_path / "lake"), format="csv")
    blocked = tmp_path / "lake" / STATE_FOLDER / "locks"
    blocked.parent.mkdir(parents=True)
    blocked.write_text("not a folder")
    spec = declared(
        name="copy", source=open_kafka(kafka), source_query=source, continue_on_target_failure=True,
        targets=[Target(connection=lake, prefix="raw/n"), Target(connection=shop(tmp_path), table=("main", "numbers"))],
    )  # fmt: skip
    opened = open_stream(spec, BatchBarrier(), still_ours=lambda: None, once=True)
    try:
        for number in (1, 2):
            send(kafka, source, [{"value": json.dumps({"n": number})}])
            assert opened.start().awaitTermination(120)
            assert opened.work.counts.behind["raw/n"] == 2 - number
            if blocked.is_file():
                blocked.unlink()
    finally:
        opened.close()
    assert rows(tmp_path, "SELECT n FROM numbers") == [(1,), (2,)]
    files = sorted((tmp_path / "lake" / "raw").rglob("*.csv"), key=lambda file: file.stat().st_mtime)
    assert [file.read_text().splitlines()[1].split(",")[0] for file in files] == ["1", "2"]


@pytest.mark.full
def test_a_letter_that_was_parked_stays_so_when_its_message_is_read_again(
    kafka: Kafka, tmp_path: Path, run_log: Any
) -> None:
    topic = new_topic(kafka)
    send(kafka, topic, [*GOOD, {"value": b"{cut"}, {"value": b"{short"}])
    spec = orders(kafka, topic, tmp_path)
    assert run(spec, run_log).total_rows == 4
    one = next(letter for letter in service.list_letters(spec, bodies=True) if letter.payload == b"{cut")
    assert service.park_letters(spec, LetterSelection(ids=(one.id,))) == 1
    rewind.rewind_stream(spec, rewind.RewindTarget.of("earliest"), confirmed=True, run_log=run_log)
    run(spec, run_log)
    assert {letter.payload: letter.status for letter in service.list_letters(spec, bodies=True)} == {
        b"{cut": "parked", b"{short": "pending",
    }  # fmt: skip
    assert rows(tmp_path, "SELECT count(*) FROM orders") == [(4,)]


@pytest.mark.full("a batch without any column")
def test_messages_that_are_all_bad_are_counted(kafka: Kafka, tmp_path: Path) -> None:
    topic = new_topic(kafka)
    send(kafka, topic, [{"value": b"{"}, {"value": b"["}])
    assert run(orders(kafka, topic, tmp_path)).total_rows == 2
