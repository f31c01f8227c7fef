"""Change data in Avro as Kafka Connect writes it: what columns mean beyond Avro's types, and ids where registries put them."""

from __future__ import annotations

import io
import json
import secrets
import sqlite3
import urllib.request
from contextlib import closing
from pathlib import Path
from typing import Any

import fastavro
import pytest

from ematix_flow import CDC, KafkaConnection, SQLiteConnection, run_streaming_pipeline
from ematix_flow.messages.decode import DecodingState, decode
from ematix_flow.messages.decoding_state import MOST_MISSING
from ematix_flow.messages.registries.confluent import ConfluentRegistry
from ematix_flow.messages.registries.registry import AVRO
from tests.services.kafka import Kafka
from tests.streams import kafka_session
from tests.streams.kafka_topics import new_topic, send
from tests.streams.messages import envelopes


def connect(base: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": base, "connect.version": 1, "connect.name": name, **more}


def change_schema(scale: int) -> dict[str, Any]:
    """As the connector for PostgreSQL and Connect's Avro converter write it."""
    decimal = connect(
        "bytes", "org.apache.kafka.connect.data.Decimal", scale=scale, precision=10, logicalType="decimal",
        **{"connect.parameters": {"scale": str(scale), "connect.decimal.precision": "10"}},
    )  # fmt: skip
    variable = {
        "type": "record", "name": "VariableScaleDecimal", "namespace": "io.debezium.data",
        "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}],
        "connect.name": "io.debezium.data.VariableScaleDecimal",
    }  # fmt: skip
    kinds: dict[str, Any] = {
        "id": "long", "price": decimal, "any": variable, "born": connect("int", "io.debezium.time.Date"),
        "seen": connect("long", "io.debezium.time.MicroTimestamp"), "note": "string",
        "sent": connect("long", "org.apache.kafka.connect.data.Timestamp", logicalType="timestamp-millis"),
    }  # fmt: skip
    fields = [{"name": name, "type": kind if name == "id" else ["null", kind]} for name, kind in kinds.items()]
    row = {"type": "record", "name": "Value", "namespace": "shop.public.t", "fields": fields}
    source = [{"name": "ts_ms", "type": "long"}, {"name": "lsn", "type": "long"}, {"name": "table", "type": "string"}]
    return {
        "type": "record", "name": "Envelope", "namespace": "shop.public.t",
        "fields": [
            {"name": "before", "type": ["null", row]}, {"name": "after", "type": ["null", "Value"]},
            {"name": "source", "type": {"type": "record", "name": "Source", "fields": source}}, {"name": "op", "type": "string"},
        ],
    }  # fmt: skip


def written(schema: dict[str, Any], row: dict[str, Any], lsn: int) -> bytes:
    """One change without anything before it; logical types are left out, so that values are written as they are."""
    text = json.loads(json.dumps(schema).replace('"logicalType"', '"no"'))
    out = io.BytesIO()
    source = {"ts_ms": 1_760_000_000_000, "lsn": lsn, "table": "t"}
    event = {"before": None, "after": row, "source": source, "op": "c"}
    fastavro.schemaless_writer(out, fastavro.parse_schema(text), event)
    return out.getvalue()


def ids(registry: str, subject: str) -> dict[str, int]:
    """What Apicurio itself numbers a schema by."""
    root = registry.partition("/apis/")[0]
    address = f"{root}/apis/registry/v3/groups/default/artifacts/{subject}/versions/branch=latest"
    with urllib.request.urlopen(address, timeout=20) as answer:
        found: dict[str, int] = json.load(answer)
    return found


def test_columns_are_what_connect_says_and_ids_are_in_headers(
    kafka: Kafka, schema_registry: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka_session.session(tmp_path, monkeypatch)
    topic, registry = new_topic(kafka), ConfluentRegistry(schema_registry)
    row = {
        "id": 1, "price": (12345).to_bytes(2, "big"), "any": {"scale": 3, "value": b"\x04\xd2"}, "born": 20_000,
        "seen": 1_700_000_000_123_456, "note": "2026-01-01", "sent": 1_700_000_000_123,
    }  # fmt: skip
    for number, (scale, header) in enumerate(((2, "globalId"), (4, "contentId"), (2, None)), 1):
        schema = change_schema(scale)
        subject = f"{topic}-{number}"
        confluent_id = registry.register(subject, json.dumps(schema), AVRO)
        value = written(schema, {**row, "id": number}, number)
        if header is None:
            send(kafka, topic, [{"value": b"\x00" + int(confluent_id).to_bytes(4, "big") + value}])
            continue
        said = [("apicurio.value.encoding", b"BINARY"), (f"apicurio.value.{header}", ids(schema_registry, subject)[header].to_bytes(8, "big"))]  # fmt: skip
        send(kafka, topic, [{"value": value, "headers": said}])
    run_streaming_pipeline(
        name=f"avro_{secrets.token_hex(4)}", source_query=topic, cdc=CDC(), once=True, checkpoint=str(tmp_path / "checkpoint"),
        source=KafkaConnection("in", bootstrap_servers=kafka.open, payload_format="avro", schema_registry_url=schema_registry),
        target=SQLiteConnection("out", path=str(tmp_path / "shop.db")), target_table=("main", "t"), target_primary_key=["id"],
    )  # fmt: skip
    with closing(sqlite3.connect(tmp_path / "shop.db")) as client:
        found = client.execute("SELECT id, price + 0, any + 0, born, seen, note, sent FROM t ORDER BY id").fetchall()
    same = (1.234, "2024-10-04", "2023-11-14 22:13:20.123456", "2026-01-01")
    assert [(one[0], one[1], *one[2:6]) for one in found] == [
        (1, 123.45, *same),
        (2, 1.2345, *same),
        (3, 123.45, *same),
    ]
    assert {one[6][:23] for one in found} == {"2023-11-14 22:13:20.123"}


def test_payloads_without_an_id_end_as_bad_messages_and_not_as_thousands_of_schemas(
    schema_registry: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first byte of a change without a row before it is 0, as is the one before Confluent's id."""
    spark = kafka_session.session(tmp_path, monkeypatch)
    schema = change_schema(2)
    row = {"price": None, "any": None, "born": None, "seen": None, "sent": None}
    values = [written(schema, {**row, "id": number, "note": f"n{number}"}, number) for number in range(3000)]
    how = DecodingState("avro", registry=ConfluentRegistry(schema_registry))
    found = decode(envelopes(spark, values), how).select("_error").collect()
    assert len(how.learned.missing) <= MOST_MISSING
    said = [str(one["_error"]) for one in found]
    assert sum("without an id before the payload" in one for one in said) >= 3000 - MOST_MISSING
    assert all("without an id" in one or "knows no schema" in one for one in said)
