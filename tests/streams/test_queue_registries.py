"""Brokers beside Kafka with Avro messages, whose schemas are in a real registry: read into tables, and sent on."""

from __future__ import annotations

import secrets
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ematix_flow import (
    PubSubConnection,
    RabbitMQConnection,
    SchemaRegistryConnection,
    SQLiteConnection,
    Target,
    register_connection,
    run_streaming_pipeline,
)
from ematix_flow.messages.registries.confluent import ConfluentRegistry
from ematix_flow.messages.registries.registry import AVRO
from tests.services.pubsub import PROJECT
from tests.streams.messages import avro_long, avro_text, confluent, record
from tests.streams.pubsub_topics import Project
from tests.streams.rabbit_queues import channel, new_queue, taken
from tests.streams.spool_runs import spark
from tests.streams.test_kinesis import Service

__all__ = ["spark"]

ORDER = record("Order", id="long", name="string")


@pytest.fixture(autouse=True)
def _homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: Any) -> None:
    monkeypatch.setenv("EMATIX_FLOW_CHECKPOINTS", str(tmp_path / "checkpoints"))


@pytest.fixture
def schemas(schema_registry: str) -> str:
    """The name of a connection to the registry."""
    name = f"schemas_{secrets.token_hex(4)}"
    register_connection(SchemaRegistryConnection(name, url=schema_registry))
    return name


@pytest.fixture
def shop(tmp_path: Path) -> SQLiteConnection:
    return SQLiteConnection("shop", path=str(tmp_path / "shop.db"))


def orders(registry: ConfluentRegistry, place: str) -> list[bytes]:
    """Two messages that name their schema."""
    written = registry.register(f"{place}-value", ORDER, AVRO)
    return [confluent(written, avro_long(n) + avro_text(f"name {n}")) for n in (1, 2)]


def drained(name: str, source: Any, query: str, *targets: Target) -> None:
    run_streaming_pipeline(
        name=name, source=source, source_query=query, targets=list(targets), once=True,
        transform_sql="SELECT id, name FROM source",
    )  # fmt: skip


def rows(shop: SQLiteConnection, table: str) -> list[tuple[int, str]]:
    with closing(sqlite3.connect(shop.path)) as client:
        return client.execute(f"SELECT id, name FROM {table} ORDER BY id").fetchall()


@pytest.mark.full
def test_avro_goes_from_a_queue_into_a_table_and_back_to_a_queue(
    rabbitmq_url: str, schema_registry: str, schemas: str, shop: SQLiteConnection
) -> None:
    registry = ConfluentRegistry(schema_registry)
    rabbit = RabbitMQConnection("rabbit", amqp_url=rabbitmq_url, payload_format="avro", schema_registry=schemas)
    first, second = new_queue(rabbitmq_url), new_queue(rabbitmq_url)
    with channel(rabbitmq_url) as open_channel:
        for message in orders(registry, first):
            open_channel.basic_publish("", first, message)
    drained("there", rabbit, first, Target(shop, table=("main", "sent")), Target(rabbit, queue=second))
    drained("back", rabbit, second, Target(shop, table=("main", "got")))
    assert rows(shop, "sent") == rows(shop, "got") == [(1, "name 1"), (2, "name 2")]
    assert taken(rabbitmq_url, second, seconds=1) == []
    found = registry.latest(f"{second}-value")
    assert found is not None
    assert found[1].kind == AVRO


@pytest.mark.full("RabbitMQ shows the same way through a stream")
def test_avro_goes_from_kinesis_to_pubsub(
    kinesis_url: str, pubsub_endpoint: str, schema_registry: str, schemas: str, shop: SQLiteConnection
) -> None:
    incoming, project = Service(kinesis_url), Project(pubsub_endpoint)
    topic = project.new_topic()
    subscription = project.new_subscription(topic)
    written: dict[str, Any] = {"payload_format": "avro", "schema_registry": schemas}
    kinesis = replace(incoming.connection, **written)
    pubsub = PubSubConnection("pubsub", project_id=PROJECT, endpoint=pubsub_endpoint, anonymous_auth=True, **written)
    messages = orders(ConfluentRegistry(schema_registry), incoming.name)
    incoming.client.put_records(
        StreamName=incoming.name, Records=[{"Data": message, "PartitionKey": "k"} for message in messages]
    )
    drained("there", kinesis, incoming.name, Target(shop, table=("main", "sent")), Target(pubsub, topic=topic))
    drained("back", pubsub, subscription, Target(shop, table=("main", "got")))
    assert rows(shop, "sent") == rows(shop, "got") == [(1, "name 1"), (2, "name 2")]
