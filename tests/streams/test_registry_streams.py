"""Whole streams of Avro and Protobuf: Kafka in, Kafka out, the schemas in a real registry that connections name."""

from __future__ import annotations

import secrets
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ematix_flow import (
    KafkaConnection,
    SchemaRegistryConnection,
    SQLiteConnection,
    register_connection,
    run_streaming_pipeline,
)
from ematix_flow.foundation.errors import FlowError, Unreachable
from ematix_flow.messages.registries.confluent import ConfluentRegistry
from ematix_flow.messages.registries.registry import AVRO, PROTOBUF
from tests.services.kafka import Kafka
from tests.streams import kafka_session
from tests.streams.kafka_topics import everything, new_topic, send
from tests.streams.messages import avro_long, avro_text, confluent, proto, record

ORDER = record("Order", id="long", name="string")
NEWER = record("Order", id="long", name="string", n=("long", 7))
PERSON = 'syntax = "proto3"; message Person { int64 id = 1; optional string name = 2; }'


class Shop:
    """Two topics, and a registry that the broker's connection names."""

    def __init__(self, kafka: Kafka, url: str, folder: Path) -> None:
        self.kafka, self.folder = kafka, folder
        self.name = f"shop_{secrets.token_hex(4)}"
        self.incoming, self.outgoing = new_topic(kafka), new_topic(kafka)
        self.registry = ConfluentRegistry(url)
        register_connection(SchemaRegistryConnection(f"{self.name}_schemas", url=url))

    def broker(self, payload: str) -> KafkaConnection:
        return KafkaConnection(
            f"{self.name}_{payload}", bootstrap_servers=self.kafka.open, payload_format=payload,
            schema_registry=f"{self.name}_schemas",
        )  # fmt: skip

    def drained(self, source: str, target: str, **more: Any) -> Any:
        return run_streaming_pipeline(
            name=self.name, source=self.broker(source), source_query=self.incoming, target=self.broker(target),
            target_topic=self.outgoing, checkpoint=str(self.folder / "checkpoint"), once=True, **more,
        )  # fmt: skip

    def send(self, *values: bytes) -> None:
        send(self.kafka, self.incoming, [{"value": value} for value in values])

    def received(self) -> list[bytes]:
        return [message.value() for message in everything(self.kafka, self.outgoing)]


@pytest.fixture
def shop(kafka: Kafka, schema_registry: str, tmp_path: Path, monkeypatch: Any) -> Shop:
    kafka_session.session(tmp_path, monkeypatch)
    return Shop(kafka, schema_registry, tmp_path)


def test_avro_in_and_avro_out_while_the_writers_schema_changes(shop: Shop) -> None:
    first = shop.registry.register(f"{shop.incoming}-value", ORDER, AVRO)
    shop.send(confluent(first, avro_long(1) + avro_text("ana")))
    shop.drained("avro", "avro", transform_sql="SELECT id, name FROM source")
    second = shop.registry.register(f"{shop.incoming}-value", NEWER, AVRO)
    shop.send(
        confluent(second, avro_long(2) + avro_text("bo") + avro_long(9)),
        confluent(first, avro_long(3) + avro_text("c")),
    )
    shop.drained("avro", "avro", transform_sql="SELECT id, name, n FROM source")
    found = shop.registry.latest(f"{shop.outgoing}-value")
    assert found is not None

    def written(number: int, name: str, n: int) -> bytes:
        return confluent(found[0], b"\x02" + avro_long(number) + b"\x02" + avro_text(name) + b"\x02" + avro_long(n))

    before, *after = shop.received()
    assert before[5:] == b"\x02" + avro_long(1) + b"\x02" + avro_text("ana")
    assert sorted(after) == sorted([written(2, "bo", 9), written(3, "c", 7)])


@pytest.mark.full("Avro shows the same way through a stream")
def test_protobuf_in_and_protobuf_out(shop: Shop) -> None:
    schema = shop.registry.register(f"{shop.incoming}-value", PERSON, PROTOBUF)
    shop.send(confluent(schema, proto({1: 7, 2: "ana"}), b"\x00"))
    shop.drained("protobuf", "protobuf", transform_sql="SELECT id + 1 AS id, name FROM source")
    found = shop.registry.latest(f"{shop.outgoing}-value")
    assert found is not None
    assert shop.received() == [confluent(found[0], proto({1: 8, 2: "ana"}), b"\x00")]


@pytest.mark.full("the payloads' own tests show the same error")
def test_a_registry_that_is_down_ends_the_stream_with_an_error_that_may_pass(shop: Shop) -> None:
    shop.send(confluent(1, avro_long(1) + avro_text("ana")))
    register_connection(SchemaRegistryConnection(f"{shop.name}_schemas", url="http://127.0.0.1:1"))
    with pytest.raises(Unreachable, match="cannot be reached"):
        shop.drained("avro", "json")
    assert shop.received() == []


@pytest.mark.full("the payloads' own tests show the same error")
def test_an_unknown_schema_stops_the_stream_and_loses_nothing(shop: Shop) -> None:
    shop.send(confluent(987654, b"\x02"))
    with pytest.raises(FlowError, match="knows no schema 987654"):
        shop.drained("avro", "json")
    assert shop.received() == []


def test_messages_that_cannot_be_decoded_are_never_written_as_nothing(shop: Shop) -> None:
    """A table's stage is filled before it is known what could be read: such rows must not get further."""
    known = shop.registry.register(f"{shop.incoming}-value", ORDER, AVRO)
    shop.send(confluent(known, avro_long(1) + avro_text("ana")), confluent(16_777_215, avro_long(2) + avro_text("bo")))
    table = SQLiteConnection(f"{shop.name}_table", path=str(shop.folder / "shop.db"))
    with pytest.raises(FlowError, match="16777215"):
        run_streaming_pipeline(
            name=shop.name, source=shop.broker("avro"), source_query=shop.incoming, target=table,
            target_table=("main", "orders"), checkpoint=str(shop.folder / "checkpoint"), once=True,
        )  # fmt: skip
    with closing(sqlite3.connect(shop.folder / "shop.db")) as client:
        tables = [row[0] for row in client.execute("SELECT name FROM sqlite_master WHERE name = 'orders'")]
        assert not tables or client.execute("SELECT count(*) FROM orders").fetchone() == (0,)
