"""Rows as messages: as JSON, as bytes, as Avro and as Protobuf, read back by others and by ourselves."""

from __future__ import annotations

import json
import secrets
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pytest

from ematix_flow.engine.session.session import spark_session
from ematix_flow.foundation.errors import DeclarationError, MissingColumn, PlanError
from ematix_flow.messages.decode import JARS, DecodingState
from ematix_flow.messages.encode import encode
from ematix_flow.messages.registries.confluent import ConfluentRegistry
from tests.streams.messages import avro_long, avro_text, confluent, payloads, rows

breadth = pytest.mark.full("a case beside the ordinary ones")
MOMENT = datetime(2026, 1, 31, 12, 30, 0, 123456, tzinfo=timezone.utc)
ROW = {
    "id": 2**53 + 1, "small": 5, "price": Decimal("12.30"), "ratio": 0.1, "paid": True, "name": 'a "quoted" žluť 🦊',
    "data": b"\x00\xff", "day": date(2026, 1, 31), "at": MOMENT, "nothing": None,
    "buyer": {"city": "Rome", "seen": MOMENT, "zip": None}, "lines": [{"sku": "a", "n": 1}, {"sku": "b", "n": None}],
    "tags": ["x", "y"], "counts": {"k": 1},
}  # fmt: skip
KINDS = (
    "id BIGINT, small INT, price DECIMAL(10,2), ratio DOUBLE, paid BOOLEAN, name STRING, data BINARY, day DATE, "
    "at TIMESTAMP, nothing STRING, buyer STRUCT<city: STRING, seen: TIMESTAMP, zip: STRING>, "
    "lines ARRAY<STRUCT<sku: STRING, n: BIGINT>>, tags ARRAY<STRING>, counts MAP<STRING, BIGINT>"
)
NAIVE = MOMENT.replace(tzinfo=None)
EMPTY: dict[str, Any] = dict.fromkeys(ROW)


@pytest.fixture(scope="module")
def spark() -> Any:
    """The engine's own session, with what these payloads need."""
    session = spark_session({*JARS["avro"], *JARS["protobuf"]})
    session.conf.set("spark.sql.shuffle.partitions", "2")
    return session


@pytest.fixture
def registry(schema_registry: str) -> ConfluentRegistry:
    """A client that has fetched nothing yet."""
    return ConfluentRegistry(schema_registry)


def frame_of(spark: Any, *found: dict[str, Any], kinds: str = KINDS) -> Any:
    return spark.createDataFrame([tuple(row.values()) for row in found], kinds).coalesce(1)


def test_json_keeps_every_value(spark: Any) -> None:
    made = encode(frame_of(spark, ROW, EMPTY), key_column="id")
    assert [(field.name, field.dataType.simpleString()) for field in made.schema] == [
        ("key", "binary"), ("value", "binary"), ("headers", "array<struct<key:string,value:binary>>"),
    ]  # fmt: skip
    first, second = made.collect()
    assert (bytes(first.key), first.headers, second.key) == (b"9007199254740993", None, None)
    told = json.loads(bytes(first.value), parse_float=Decimal)
    assert told == {
        **ROW, "ratio": Decimal("0.1"), "data": "AP8=", "day": "2026-01-31", "at": "2026-01-31T12:30:00.123456Z",
        "buyer": {"city": "Rome", "seen": "2026-01-31T12:30:00.123456Z", "zip": None},
    }  # fmt: skip
    assert json.loads(bytes(second.value)) == EMPTY


@breadth
def test_what_is_written_as_json_is_read_back(spark: Any) -> None:
    (row,) = encode(frame_of(spark, ROW)).collect()
    kinds = {field.name: field.dataType.simpleString() for field in frame_of(spark, ROW).schema}
    (found,) = payloads(rows(spark, [bytes(row.value)], DecodingState("json", kinds)))
    assert found == {**ROW, "at": NAIVE, "buyer": {**ROW["buyer"], "seen": NAIVE}}


@pytest.mark.full
@pytest.mark.parametrize(
    ("column", "key"), [("name", "a \"quoted\" žluť 🦊".encode()), ("data", b"\x00\xff"), ("at", b"2026-01-31T12:30:00.123456Z"),
                        ("counts", b'{"k":1}'), ("nothing", None)],
)  # fmt: skip
def test_a_key_is_text_or_bytes(spark: Any, column: str, key: bytes | None) -> None:
    (row,) = encode(frame_of(spark, ROW), key_column=column).collect()
    assert (None if row.key is None else bytes(row.key)) == key


@pytest.mark.full
def test_a_key_column_that_is_not_there_is_named(spark: Any) -> None:
    with pytest.raises(MissingColumn, match="no column 'idd'") as caught:
        encode(frame_of(spark, ROW), key_column="idd")
    assert "did you mean 'id'" in str(caught.value)


@pytest.mark.full
def test_the_messages_own_columns_are_no_part_of_the_value(spark: Any) -> None:
    frame = spark.sql(
        "SELECT 1 AS a, struct('t' AS topic, 2 AS partition) AS _source, X'00' AS _raw, CAST(NULL AS STRING) AS _error, "
        "array(struct('h' AS key, X'01' AS value)) AS _headers, 't' AS topic"
    )
    (row,) = encode(frame, carried=["topic"]).collect()
    assert bytes(row.value) == b'{"a":1}'
    assert (row.topic, [(one.key, bytes(one.value)) for one in row.headers]) == ("t", [("h", b"\x01")])
    (chosen,) = encode(frame, columns=["topic"]).collect()
    assert bytes(chosen.value) == b'{"topic":"t"}'


@pytest.mark.full
def test_raw_bytes_are_written_from_one_column(spark: Any) -> None:
    assert [
        bytes(row.value) for row in encode(spark.sql("SELECT X'00ff' AS payload, 1 AS n"), "raw_bytes").collect()
    ] == [b"\x00\xff"]
    assert [bytes(row.value) for row in encode(spark.sql("SELECT 'ž' AS text"), "raw_bytes").collect()] == [
        "ž".encode()
    ]
    with pytest.raises(PlanError, match="one column of bytes or text"):
        encode(spark.sql("SELECT 1 AS a, 2 AS b"), "raw_bytes")


@pytest.mark.parametrize("payload", ["avro", "protobuf"])
def test_what_is_written_with_a_schema_is_read_back(spark: Any, registry: ConfluentRegistry, payload: str) -> None:
    subject = f"t{secrets.token_hex(4)}-value"
    made = encode(frame_of(spark, ROW, EMPTY), payload, subject=subject, registry=registry).collect()
    assert registry.latest(subject) is not None
    found = payloads(rows(spark, [bytes(row.value) for row in made], DecodingState(payload, registry=registry)))
    expected = {**ROW, "at": NAIVE, "buyer": {**ROW["buyer"], "seen": NAIVE}}
    if payload == "protobuf":
        # Protobuf has neither decimals nor dates, and an absent list is an empty one.
        expected = {**expected, "price": "12.30", "day": "2026-01-31"}
        assert found == [expected, {**EMPTY, "lines": [], "tags": [], "counts": {}}]
    else:
        assert found == [expected, EMPTY]


@breadth
def test_avro_is_written_as_others_read_it(spark: Any, registry: ConfluentRegistry) -> None:
    subject = f"t{secrets.token_hex(4)}-value"
    frame = spark.sql("SELECT 1L AS id, 'ana' AS name, CAST(NULL AS STRING) AS note")
    (row,) = encode(frame, "avro", subject=subject, registry=registry).collect()
    found = registry.latest(subject)
    assert found is not None
    assert bytes(row.value) == confluent(found[0], b"\x02" + avro_long(1) + b"\x02" + avro_text("ana") + b"\x00")


@breadth
@pytest.mark.parametrize("payload", ["avro", "protobuf"])
def test_new_columns_are_a_new_version_that_old_readers_understand(
    spark: Any, registry: ConfluentRegistry, payload: str
) -> None:
    subject = f"t{secrets.token_hex(4)}-value"
    registry._request("PUT", f"/config/{subject}", {"compatibility": "BACKWARD"})
    first = encode(spark.sql("SELECT 1L AS id, 'ana' AS name"), payload, subject=subject, registry=registry).collect()
    second = encode(
        spark.sql("SELECT 2L AS id, true AS paid, 'bo' AS name"), payload, subject=subject, registry=registry
    ).collect()
    values = [bytes(row.value) for row in (*first, *second)]
    found = payloads(rows(spark, values, DecodingState(payload, registry=registry)))
    assert [(row["id"], row["name"], row["paid"]) for row in found] == [(1, "ana", None), (2, "bo", True)]


@breadth
def test_protobuf_fields_keep_their_numbers(spark: Any, registry: ConfluentRegistry) -> None:
    subject = f"t{secrets.token_hex(4)}-value"
    encode(spark.sql("SELECT 1 AS a, 2 AS b"), "protobuf", subject=subject, registry=registry)
    encode(spark.sql("SELECT 3 AS c, 2 AS b"), "protobuf", subject=subject, registry=registry)
    found = registry.latest(subject)
    assert found is not None
    text = " ".join(found[1].text.split())
    assert "int32 b = 2;" in text
    assert "int32 c = 3;" in text
    assert "reserved 1" in text


@pytest.mark.full
def test_columns_that_a_schema_cannot_name_are_refused(spark: Any, registry: ConfluentRegistry) -> None:
    with pytest.raises(PlanError, match="'a b' cannot be a field of an Avro record"):
        encode(spark.sql("SELECT 1 AS `a b`"), "avro", subject="s-value", registry=registry)
    with pytest.raises(PlanError, match="Protobuf has no type for array<array<int>>"):
        encode(spark.sql("SELECT array(array(1)) AS a"), "protobuf", subject="s-value", registry=registry)
    with pytest.raises(DeclarationError, match="written with a schema registry"):
        encode(spark.sql("SELECT 1 AS a"), "avro")
