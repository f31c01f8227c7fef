"""Queues of Avro messages, whose schemas are in a real registry: read into a table, and sent to another queue."""

from __future__ import annotations

import secrets
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ematix_flow import (
    RabbitMQConnection,
    SchemaRegistryConnection,
    SQLiteConnection,
    Target,
    register_connection,
    run_streaming_pipeline,
)
from ematix_flow.families.messages.confluent import ConfluentRegistry
from ematix_flow.families.messages.registry import AVRO
from tests.streams.messages import avro_long, avro_text, confluent, record
from tests.streams.rabbit_queues import channel, new_queue, taken
from tests.streams.spool_runs import spark

__all__ = ["spark"]

ORDER = record("Order", id="long", name="string")


@pytest.fixture(autouse=True)
def _homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: Any) -> None:
    monkeypatch.setenv("EMATIX_FLOW_CHECKPOINTS", str(tmp_path / "checkpoints"))


def publish(url: str, queue: str, *messages: bytes) -> None:
    with channel(url) as open_channel:
        for message in messages:
            open_channel.basic_publish("", queue, message)


def test_avro_goes_from_queue_to_queue_and_into_a_table(
    rabbitmq_url: str, schema_registry: str, tmp_path: Path
) -> None:
    """Out to a table and a queue, and from that queue back into another table."""
    schemas, registry = f"schemas_{secrets.token_hex(4)}", ConfluentRegistry(schema_registry)
    register_connection(SchemaRegistryConnection(schemas, url=schema_registry))
    rabbit = RabbitMQConnection("rabbit", amqp_url=rabbitmq_url, payload_format="avro", schema_registry=schemas)
    shop = SQLiteConnection("shop", path=str(tmp_path / "shop.db"))
    first, second = new_queue(rabbitmq_url), new_queue(rabbitmq_url)
    written = registry.register(f"{first}-value", ORDER, AVRO)
    publish(rabbitmq_url, first, *(confluent(written, avro_long(n) + avro_text(f"name {n}")) for n in (1, 2)))
    run_streaming_pipeline(
        name="there", source=rabbit, source_query=first, transform_sql="SELECT id, name FROM source", once=True,
        targets=[Target(shop, table=("main", "sent")), Target(rabbit, queue=second)],
    )  # fmt: skip
    run_streaming_pipeline(
        name="back", source=rabbit, source_query=second, target=shop, target_table=("main", "got"), once=True,
        transform_sql="SELECT id, name FROM source",
    )  # fmt: skip
    with closing(sqlite3.connect(tmp_path / "shop.db")) as client:
        for table in ("sent", "got"):
            rows = client.execute(f"SELECT id, name FROM {table} ORDER BY id").fetchall()
            assert rows == [(1, "name 1"), (2, "name 2")]
    assert taken(rabbitmq_url, second, seconds=1) == []
    found = registry.latest(f"{second}-value")
    assert found is not None
    assert found[1].kind == AVRO
