"""Kafka as the source of a stream, against a real broker."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from ematix_flow.backends.kafka import client
from ematix_flow.backends.kafka.source import KafkaSource
from ematix_flow.contract.stream import ENVELOPE, LostRows, StreamRead
from ematix_flow.declare.connections import KafkaConnection
from ematix_flow.engine.session.session import spark_session
from ematix_flow.foundation.errors import ConfigError, ConnectionFailed, DataError, MissingTable, PlanError, Unreachable
from tests.services.kafka import PASSWORD, Kafka
from tests.streams.kafka_session import drained, open_kafka, plain, scram, with_certificate
from tests.streams.kafka_topics import SECONDS, admin, drop_before, group_offsets, new_topic, send


@pytest.fixture(scope="module")
def spark(every_jar: None) -> Any:
    return spark_session()


@pytest.fixture
def source(kafka: Kafka) -> Iterator[KafkaSource]:
    opened = KafkaSource(open_kafka(kafka, group_id="tests"))
    yield opened
    opened.close()


def reading(topic: str, folder: Path, **fields: Any) -> StreamRead:
    return StreamRead(f"stream-{folder.name}", topic, str(folder / "checkpoint"), **fields)


def test_a_message_arrives_as_an_envelope(kafka: Kafka, source: KafkaSource, spark: Any, tmp_path: Path) -> None:
    topic = new_topic(kafka)
    written = datetime(2026, 3, 4, 5, 6, 7, 890_000, tzinfo=timezone.utc)
    moment = int(written.timestamp() * 1000)
    send(
        kafka, topic,
        [
            {"value": b'{"n": 1}', "key": b"k", "headers": [("trace", b"\x00\xff"), ("empty", None)], "timestamp": moment},
            {"value": None, "key": b"gone", "timestamp": moment},
        ],
    )  # fmt: skip
    read = reading(topic, tmp_path)
    assert [(name, kind.upper()) for name, kind in source.frame(spark, read).dtypes] == [
        (name, kind.replace(" ", "").upper()) for name, kind in ENVELOPE
    ]
    ((first, second),) = drained(spark, source, read)
    assert (bytes(first.key), bytes(first.value)) == (b"k", b'{"n": 1}')
    assert [(item.key, item.value and bytes(item.value)) for item in first.headers] == [
        ("trace", b"\x00\xff"), ("empty", None),
    ]  # fmt: skip
    assert (first.topic, first.partition, first.offset, first.message_id) == (topic, 0, 0, None)
    assert first.timestamp.replace(tzinfo=timezone.utc) == written
    assert (bytes(second.key), second.value, second.headers, second.offset) == (b"gone", None, None, 1)


def test_topics_are_read_by_a_list_and_by_a_pattern(
    kafka: Kafka, source: KafkaSource, spark: Any, tmp_path: Path
) -> None:
    stem = new_topic(kafka)
    first, second = (new_topic(kafka, name=f"{stem}-{part}", partitions=2) for part in ("a", "b"))
    for topic in (stem, first, second):
        send(kafka, topic, [{"value": topic.encode()}])
    for number, (query, wanted) in enumerate(
        [(f"{first}, {second}", {first, second}), (f"{stem}-.*", {first, second}), (f"/{stem}(-a)?/", {stem, first})]
    ):
        folder = tmp_path / str(number)
        read = reading(query, folder)
        source.check(read)
        assert {row.topic for rows in drained(spark, source, read) for row in rows} == wanted


def test_a_micro_batch_is_bounded_also_where_the_stream_does_not_say(
    kafka: Kafka, source: KafkaSource, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(kafka)
    send(kafka, topic, [{"value": str(number).encode()} for number in range(5)])
    monkeypatch.setattr("ematix_flow.backends.kafka.source.MAX_ROWS", 2)
    assert [len(rows) for rows in drained(spark, source, reading(topic, tmp_path / "a"))] == [2, 2, 1]
    assert [len(rows) for rows in drained(spark, source, reading(topic, tmp_path / "b", max_rows=5))] == [5]


@pytest.mark.full
def test_a_stream_begins_at_its_start(kafka: Kafka, source: KafkaSource, spark: Any, tmp_path: Path) -> None:
    topic = new_topic(kafka, partitions=2)
    send(kafka, topic, [{"value": b"%d" % n, "partition": n % 2} for n in range(20)])
    assert drained(spark, source, reading(topic, tmp_path / "latest", start="latest")) == []
    start = json.dumps({topic: {"0": 7}})  # nothing is said of the other partition, which is read from its beginning
    (rows,) = drained(spark, source, reading(topic, tmp_path / "offsets", start=start))
    assert sorted(int(bytes(row.value)) for row in rows) == sorted([14, 16, 18, *range(1, 20, 2)])
    with pytest.raises(PlanError, match=f"is to start in {topic}-5, which"):
        source.check(reading(topic, tmp_path, start=json.dumps({topic: {"5": 0}})))
    with pytest.raises(PlanError, match="cannot start at 'tomorrow'"):
        source.check(reading(topic, tmp_path, start="tomorrow"))


@pytest.mark.full
def test_a_micro_batch_has_no_more_rows_than_allowed(
    kafka: Kafka, source: KafkaSource, spark: Any, tmp_path: Path
) -> None:
    topic = new_topic(kafka)
    send(kafka, topic, [{"value": b"%d" % n} for n in range(25)])
    batches = drained(spark, source, reading(topic, tmp_path, max_rows=10))
    assert [len(rows) for rows in batches] == [10, 10, 5]


@pytest.mark.full
@pytest.mark.parametrize("way", ["sha-256", "sha-512", "plain", "certificate"])
def test_a_stream_gets_in_by_every_login(kafka: Kafka, spark: Any, tmp_path: Path, way: str) -> None:
    connection = {"plain": plain, "certificate": with_certificate}.get(way, lambda broker: scram(broker, way))(kafka)
    topic = new_topic(kafka)
    send(kafka, topic, [{"value": b"in"}])
    source, read = KafkaSource(connection), reading(topic, tmp_path)
    source.check(read)
    ((row,),) = drained(spark, source, read)
    assert bytes(row.value) == b"in"
    source.committed(read, {topic: {"0": 1}})
    assert [lag.rows for lag in source.lag(read, {topic: {"0": 0}})] == [1]
    source.close()


@pytest.mark.full
def test_a_password_may_have_any_character(kafka: Kafka, spark: Any, tmp_path: Path) -> None:
    from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

    odd = 'a "quoted" \\ one; and = žluť'
    new = UserScramCredentialUpsertion("odd", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), odd.encode())
    for done in admin(kafka).alter_user_scram_credentials([new]).values():
        done.result(SECONDS)
    topic = new_topic(kafka)
    send(kafka, topic, [{"value": b"in"}])
    source, read = KafkaSource(scram(kafka, user="odd", password=odd)), reading(topic, tmp_path)
    deadline = time.monotonic() + SECONDS
    while True:  # the broker learns of a new login a little later
        try:
            source.check(read)
            break
        except ConnectionFailed:
            assert time.monotonic() < deadline
            source = KafkaSource(scram(kafka, user="odd", password=odd))
    assert [len(rows) for rows in drained(spark, source, read)] == [1]


@pytest.mark.full
def test_a_wrong_password_is_one_sentence_without_the_password(kafka: Kafka, spark: Any, tmp_path: Path) -> None:
    topic, wrong = new_topic(kafka), "not-the-password"
    for connection in (scram(kafka, password=wrong), plain(kafka, password=wrong)):
        began = time.monotonic()
        with pytest.raises(ConnectionFailed, match="refuses the login") as refused:
            KafkaSource(connection).check(reading(topic, tmp_path))
        assert time.monotonic() - began < 60
        assert not isinstance(refused.value, Unreachable)
        assert wrong not in str(refused.value)
        assert PASSWORD not in str(refused.value)
    source = KafkaSource(scram(kafka, password=wrong))
    with pytest.raises(Exception, match="Sasl") as failed:
        drained(spark, source, reading(topic, tmp_path))
    told = source.translated(failed.value)
    assert isinstance(told, ConnectionFailed)
    assert "refuses the login" in str(told)
    assert wrong not in str(told)


def test_a_broker_that_is_down_is_unreachable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "PATIENCE_SECONDS", 1.0)
    source = KafkaSource(KafkaConnection("events", bootstrap_servers="127.0.0.1:1"))
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:1") as failed:
        source.check(reading("events", tmp_path))
    assert failed.value.retryable
    assert "flow connections check" in str(failed.value)


def test_a_topic_that_is_not_there_is_named_with_its_neighbour(
    kafka: Kafka, source: KafkaSource, tmp_path: Path
) -> None:
    topic = new_topic(kafka, name=f"orders-{tmp_path.name.replace('_', '-')}")
    with pytest.raises(MissingTable, match=f"did you mean '{topic}'"):
        source.check(reading(topic.replace("orders", "ordres"), tmp_path))
    with pytest.raises(MissingTable, match=r"no topic at .* matches 'nothing-like-it-\.\*'"):
        source.check(reading("nothing-like-it-.*", tmp_path))
    with pytest.raises(PlanError, match="names no topic"):
        source.check(reading("two words", tmp_path))


def test_offsets_are_seen_in_the_group_which_has_no_members(kafka: Kafka, source: KafkaSource, tmp_path: Path) -> None:
    topic = new_topic(kafka, partitions=2)
    send(kafka, topic, [{"value": b"x", "partition": n % 2} for n in range(6)])
    source.committed(reading(topic, tmp_path), {topic: {"0": 3, "1": 2}})
    seen = group_offsets(kafka, "tests")
    assert (seen[f"{topic}-0"], seen[f"{topic}-1"]) == (3, 2)
    (described,) = admin(kafka).describe_consumer_groups(["tests"]).values()
    assert described.result(SECONDS).members == []
    nameless = KafkaSource(open_kafka(kafka))
    nameless.committed(reading(topic, tmp_path), {topic: {"0": 1}})
    assert group_offsets(kafka, f"ematix-flow-stream-{tmp_path.name}") == {f"{topic}-0": 1}
    nameless.close()


@pytest.mark.full
def test_lag_is_reported_in_rows_and_in_seconds(kafka: Kafka, source: KafkaSource, tmp_path: Path) -> None:
    topic = new_topic(kafka, partitions=3)
    old = int((time.time() - 120) * 1000)
    send(kafka, topic, [{"value": b"x", "partition": 0, "timestamp": old + n} for n in range(10)])
    send(kafka, topic, [{"value": b"x", "partition": 1} for _ in range(4)])
    first, second, third = source.lag(reading(topic, tmp_path), {topic: {"0": 4, "1": 4}})
    assert (first.part, first.rows) == (f"{topic}-0", 6)
    assert first.seconds is not None
    assert 118 < first.seconds < 180
    assert (second.rows, second.seconds) == (0, 0.0)
    assert (third.part, third.rows) == (f"{topic}-2", 0)


def test_what_was_dropped_unread_is_counted_and_stops_the_stream(
    kafka: Kafka, source: KafkaSource, spark: Any, tmp_path: Path
) -> None:
    topic, read = new_topic(kafka, partitions=2), None
    send(kafka, topic, [{"value": b"%d" % n, "partition": n % 2} for n in range(20)])
    read = reading(topic, tmp_path)
    assert sum(map(len, drained(spark, source, read))) == 20
    send(kafka, topic, [{"value": b"%d" % n, "partition": n % 2} for n in range(20, 40)])
    assert source.lost(read, {topic: {"0": 10, "1": 10}}) == []
    drop_before(kafka, topic, 0, 15)
    assert source.lost(read, {topic: {"0": 10, "1": 10}}) == [LostRows(f"{topic}-0", "10", "15", 5)]
    with pytest.raises(Exception, match=r".") as stopped:
        drained(spark, source, read)
    told = source.translated(stopped.value)
    assert isinstance(told, DataError)
    assert "no longer keeps messages" in str(told)
    assert source.lost(read, {topic: {"0": 15, "7": 1}, "never-there": {"0": 4}}) == [
        LostRows("never-there-0", "4", "", None), LostRows(f"{topic}-7", "1", "", None),
    ]  # fmt: skip
    assert source.lost(read, {topic: {"1": 50}}) == [LostRows(f"{topic}-1", "50", "0", None)]


@pytest.mark.full
def test_offsets_of_a_moment_are_those_of_the_first_message_after_it(
    kafka: Kafka, source: KafkaSource, tmp_path: Path
) -> None:
    topic = new_topic(kafka, partitions=2)
    moment = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
    stamps = [int((moment + timedelta(minutes=n)).timestamp() * 1000) for n in range(10)]
    send(kafka, topic, [{"value": b"x", "partition": 0, "timestamp": stamp} for stamp in stamps])
    send(kafka, topic, [{"value": b"x", "partition": 1, "timestamp": stamps[0]} for _ in range(3)])
    read = reading(topic, tmp_path)
    assert source.offsets_at(read, moment + timedelta(minutes=4)) == {topic: {"0": 4, "1": 3}}
    assert source.offsets_at(read, datetime(2025, 1, 1)) == {topic: {"0": 0, "1": 0}}


@pytest.mark.full
def test_a_certificate_that_is_not_there_is_named(kafka: Kafka, tmp_path: Path) -> None:
    key = tmp_path / "old.key"
    key.write_text("-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----\n")
    absent = KafkaConnection("events", bootstrap_servers=kafka.certificates, tls_ca_path=str(tmp_path / "ca.pem"))
    with pytest.raises(ConfigError, match=r"tls_ca_path = .*ca\.pem cannot be read"):
        KafkaSource(absent).check(reading("events", tmp_path))
    old = KafkaConnection(
        "events", bootstrap_servers=kafka.certificates, tls_ca_path=str(kafka.folder / "ca.pem"),
        tls_cert_path=str(kafka.folder / "client.pem"), tls_key_path=str(key),
    )  # fmt: skip
    with pytest.raises(ConfigError, match="openssl pkcs8"):
        KafkaSource(old).check(reading("events", tmp_path))


@pytest.mark.full
def test_a_door_that_wants_certificates_is_not_entered_without(kafka: Kafka, tmp_path: Path) -> None:
    bare = KafkaConnection("events", bootstrap_servers=f"SSL://{kafka.certificates}")
    with pytest.raises(ConnectionFailed, match="do not agree about TLS"):
        KafkaSource(bare).check(reading("events", tmp_path))


@pytest.mark.full
def test_asking_what_there_is_imports_neither_spark_nor_the_client() -> None:
    asked = (
        "import sys; import ematix_flow._core; from ematix_flow.backends.catalog import all_backends; all_backends();"
        "print(sorted({'pyspark', 'confluent_kafka', 'pyarrow'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
