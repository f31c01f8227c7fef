"""Kafka by hand: batches of a topic as Arrow and back, against a real broker."""

from __future__ import annotations

import datetime
import decimal
import json
from typing import Any

import pyarrow as pa
import pytest

from ematix_flow._core import KafkaBackend
from ematix_flow.backends.kafka import client
from ematix_flow.foundation.errors import (
    BadValue,
    ConfigError,
    ConnectionFailed,
    DeclarationError,
    MissingColumn,
    MissingTable,
    Unreachable,
)
from ematix_flow.messages.registries.registry import UnknownSchema
from tests.services.kafka import PASSWORD, USER, Kafka
from tests.streams.kafka_topics import everything, group_offsets, new_topic, send, values

QUICK = {"idle_timeout_ms": 700, "batch_window_ms": 300}


def opened(kafka: Kafka, **fields: Any) -> KafkaBackend:
    return KafkaBackend.open(kafka.open, **{**QUICK, **fields})


def rows_of(batches: list[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]


def test_a_topic_of_json_is_read_as_batches(kafka: Kafka) -> None:
    topic = new_topic(kafka)
    said = [{"n": n, "who": f"Žofie {n}", "inner": {"x": [n, n + 1]}} for n in range(25)]
    send(kafka, topic, [{"value": json.dumps(row, indent=n % 2 or None).encode()} for n, row in enumerate(said)])
    send(kafka, topic, [{"value": None, "key": b"gone"}])
    with opened(kafka, group_id="json-readers", batch_size=10) as backend:
        assert backend.ping() is True
        batches = backend.read_arrow_stream(topic)
    assert all(isinstance(batch, pa.RecordBatch) for batch in batches)
    assert [batch.num_rows for batch in batches] == [10, 10, 6]
    assert rows_of(batches) == [*said, {"n": None, "who": None, "inner": None}]


def test_only_committed_batches_are_not_read_again(kafka: Kafka) -> None:
    topic, group = new_topic(kafka), f"resume-{id(kafka)}"
    send(kafka, topic, [{"value": b'{"n": %d}' % n} for n in range(30)])
    with opened(kafka, group_id=group, batch_size=10) as backend:
        batches = backend.iter_arrow_stream(topic)
        assert rows_of([next(batches), next(batches)]) == [{"n": n} for n in range(20)]
        backend.commit_offsets()
        next(batches)  # handed out, and nobody says that it is done
    assert group_offsets(kafka, group) == {f"{topic}-0": 20}
    with opened(kafka, group_id=group) as again:
        assert rows_of(again.read_arrow_stream(topic)) == [{"n": n} for n in range(20, 30)]
        again.commit_offsets()
    assert group_offsets(kafka, group) == {f"{topic}-0": 30}


def test_batches_written_as_json_are_read_back(kafka: Kafka) -> None:
    topic = new_topic(kafka, partitions=2)
    when = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.timezone.utc)
    first = pa.RecordBatch.from_pylist([{"n": 1, "t": "é"}, {"n": None, "t": None}])
    second = pa.RecordBatch.from_pylist([{"at": when, "much": decimal.Decimal("1.10"), "raw": b"\x00\xff"}])
    with opened(kafka) as backend:
        assert backend.write_arrow_stream(topic, [first, second]) == 3
    found = sorted((json.loads(value) for value in values(kafka, topic)), key=str)
    assert sorted([{"n": 1, "t": "é"}, {"n": None, "t": None}], key=str) == [row for row in found if "n" in row]
    assert {"at": "2026-01-02T03:04:05+00:00", "much": "1.10", "raw": "AP8="} in found


def test_bytes_go_through_unchanged(kafka: Kafka) -> None:
    source, target = new_topic(kafka), new_topic(kafka)
    send(
        kafka, source, [{"value": b"\x00\xff", "key": b"k"}, {"value": b"", "key": None}, {"value": None, "key": b"t"}]
    )
    with opened(kafka, group_id="raw", payload_format="raw_bytes") as backend:
        batches = backend.read_arrow_stream(source)
        assert batches[0].schema.names == ["key", "value", "topic", "partition", "offset", "timestamp"]
        assert backend.write_arrow_stream(target, batches) == 3
        with pytest.raises(MissingColumn, match="needs a column value, and this one has n"):
            backend.write_arrow_stream(target, [pa.RecordBatch.from_pylist([{"n": 1}])])
    assert [(item.key(), item.value()) for item in everything(kafka, target)] == [
        (b"k", b"\x00\xff"), (None, b""), (b"t", None),
    ]  # fmt: skip


def test_with_a_transactional_id_all_batches_arrive_or_none(kafka: Kafka) -> None:
    topic = new_topic(kafka)
    good = pa.RecordBatch.from_pylist([{"n": n} for n in range(100)])
    one = pa.RecordBatch.from_pylist([{"took": datetime.timedelta(seconds=1)}])

    def broken() -> Any:
        yield good
        raise RuntimeError("the notebook went wrong")

    with opened(kafka, transactional_id=f"notebook-{topic}") as backend:
        with pytest.raises(RuntimeError, match="went wrong"):
            backend.write_arrow_stream(topic, broken())
        assert everything(kafka, topic) == []
        assert backend.write_arrow_stream(topic, [good, one]) == 101
    assert len(everything(kafka, topic)) == 101


def test_a_login_is_used_and_a_wrong_one_reported(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    login = {"sasl_scram_username": USER, "sasl_scram_mechanism": "sha-512"}
    right = KafkaBackend.open(kafka.logins, sasl_scram_password=PASSWORD, **login)
    assert right.ping() is True
    assert PASSWORD not in repr(right)
    wrong = KafkaBackend.open(kafka.logins, sasl_scram_password="wrong-one", **login)
    with pytest.raises(ConnectionFailed, match="refuses the login"):
        wrong.ping()
    monkeypatch.setattr(client, "PATIENCE_SECONDS", 1.0)
    with pytest.raises(Unreachable):
        KafkaBackend.open("127.0.0.1:1").ping()


def test_what_is_wrong_is_reported_with_its_place(kafka: Kafka) -> None:
    topic = new_topic(kafka)
    send(kafka, topic, [{"value": b'{"n": 1}'}, {"value": b"{not json"}])
    with opened(kafka, group_id="bad") as backend, pytest.raises(BadValue, match=f"message {topic}-0@1 is not JSON"):
        backend.read_arrow_stream(topic)
    other = new_topic(kafka)
    send(kafka, other, [{"value": b"[1, 2]"}])
    with opened(kafka, group_id="bad") as backend:
        with pytest.raises(BadValue, match=f"message {other}-0@0 is JSON, and no object: list"):
            backend.read_arrow_stream(other)
        with pytest.raises(MissingTable, match="did you mean"):
            backend.read_arrow_stream(f"{topic}s")


def test_what_could_not_be_decoded_is_never_committed(kafka: Kafka) -> None:
    topic, group = new_topic(kafka), f"undecoded-{id(kafka)}"
    send(kafka, topic, [{"value": b'{"n": 1}'}, {"value": b"{not json"}, {"value": b'{"n": 3}'}])
    with opened(kafka, group_id=group, batch_size=1) as backend:
        batches = backend.iter_arrow_stream(topic)
        assert rows_of([next(batches)]) == [{"n": 1}]
        for _ in range(2):  # it is there again for whoever goes on
            with pytest.raises(BadValue, match="@1 is not JSON"):
                backend.read_arrow_stream(topic)
        backend.commit_offsets()
    assert group_offsets(kafka, group) == {f"{topic}-0": 1}


def test_a_topic_to_write_to_that_is_not_there_is_reported(kafka: Kafka) -> None:
    topic = new_topic(kafka)
    with opened(kafka) as backend, pytest.raises(MissingTable, match=f"{topic}s.* is not there"):
        backend.write_arrow_stream(f"{topic}s", [pa.record_batch({"n": [1]})])


def test_settings_that_cannot_work_are_refused(kafka: Kafka) -> None:
    with pytest.raises(ConfigError, match="no group to commit to"):
        opened(kafka).commit_offsets()
    with pytest.raises(DeclarationError, match="needs a transactional_id"):
        opened(kafka, delivery_semantics="exactly_once")
    with pytest.raises(DeclarationError, match="did you mean 'at_least_once'"):
        opened(kafka, delivery_semantics="at_last_once")
    with pytest.raises(DeclarationError, match="batch_size takes a positive whole number"):
        opened(kafka, batch_size=0)
    with pytest.raises(DeclarationError, match="payload_format is not one that exists"):
        opened(kafka, payload_format="xml")


@pytest.mark.parametrize("payload", ["avro", "protobuf"])
def test_batches_written_by_a_schema_are_read_back(kafka: Kafka, schema_registry: str, payload: str) -> None:
    topic = new_topic(kafka)
    moment = datetime.datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=datetime.timezone.utc)
    rows = [
        {"n": 1, "who": "Žofie", "share": 0.5, "yes": True, "raw": b"\x00\xff", "at": moment, "tags": ["a", "b"]},
        {"n": 2, "who": "", "share": -1.5, "yes": False, "raw": b"", "at": moment, "tags": []},
    ]
    batch = pa.RecordBatch.from_pylist(rows)
    with opened(
        kafka, group_id=f"by-{payload}", payload_format=payload, schema_registry_url=schema_registry
    ) as backend:
        assert backend.write_arrow_stream(topic, [batch, batch]) == 4
        send(kafka, topic, [{"value": None, "key": b"gone"}])
        assert rows_of(backend.read_arrow_stream(topic)) == [*rows, *rows, dict.fromkeys(rows[0])]
        with pytest.raises(BadValue, match="does not fit the newest schema"):
            backend.write_arrow_stream(topic, [pa.RecordBatch.from_pylist([{"n": "not a number"}])])
    assert all(message.value()[:1] == b"\x00" for message in everything(kafka, topic)[:4])


def test_a_payload_without_its_schema_is_reported_with_its_place(kafka: Kafka, schema_registry: str) -> None:
    topic = new_topic(kafka)
    send(kafka, topic, [{"value": b'{"n": 1}'}])
    with (
        opened(kafka, group_id="bad", payload_format="avro", schema_registry_url=schema_registry) as backend,
        pytest.raises(BadValue, match=f"message {topic}-0@0 does not fit its schema: no id"),
    ):
        backend.read_arrow_stream(topic)
    unknown = new_topic(kafka)
    send(kafka, unknown, [{"value": b"\x00\x00\xff\xff\xff\x02"}])
    with (
        opened(kafka, group_id="bad", payload_format="avro", schema_registry_url=schema_registry) as backend,
        pytest.raises(UnknownSchema, match="knows no schema 16777215"),
    ):
        backend.read_arrow_stream(unknown)
    with (
        opened(kafka, group_id="bad", payload_format="avro") as backend,
        pytest.raises(ConfigError, match="needs a schema registry"),
    ):
        backend.read_arrow_stream(unknown)
