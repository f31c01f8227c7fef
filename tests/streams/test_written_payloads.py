"""Avro and Protobuf messages as rows, each read with the schema it was written with, out of a real registry."""

from __future__ import annotations

import json
import secrets
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import Observation

from ematix_flow.engine.session.session import spark_session
from ematix_flow.foundation.errors import DeclarationError, Unreachable
from ematix_flow.messages.decode import JARS, NOT_LEARNED, TOMBSTONE, DecodingState, decode, learn
from ematix_flow.messages.registries.confluent import ConfluentRegistry
from ematix_flow.messages.registries.registry import AVRO, PROTOBUF
from tests.streams.messages import (
    Memory,
    avro_double,
    avro_long,
    avro_text,
    columns,
    confluent,
    envelopes,
    errors,
    in_order,
    payloads,
    proto,
    record,
    rows,
)

breadth = pytest.mark.full("a case beside the ordinary ones")


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


@pytest.fixture
def subject() -> str:
    """A subject of the test's own, where every schema is taken."""
    return f"t{secrets.token_hex(4)}-value"


ORDER = record("Order", id="long", name="string")


def order(number: int, name: str) -> bytes:
    return avro_long(number) + avro_text(name)


@breadth
def test_avro_messages_become_rows(spark: Any, registry: ConfluentRegistry, subject: str) -> None:
    schema = registry.register(subject, ORDER, AVRO)
    values = [confluent(schema, order(1, "ana")), confluent(schema, order(-(2**62), "žluť"))]
    found = rows(spark, values, DecodingState("avro", registry=registry))
    assert payloads(found) == [{"id": 1, "name": "ana"}, {"id": -(2**62), "name": "žluť"}]
    assert [row["_raw"] for row in found] == values


def test_the_writers_schema_changes_in_mid_stream(spark: Any, registry: ConfluentRegistry, subject: str) -> None:
    first = registry.register(subject, record("Order", id="int", name="string", gone=["null", "string"]), AVRO)
    newer = record(
        "Order", id="long", name="string", price=("double", 9.5), note=(["null", "string"], None), tags=(
            {"type": "array", "items": "string"}, ["none"]
        ),
    )  # fmt: skip
    memory = Memory()
    how = DecodingState("avro", registry=registry, known=memory)
    old = confluent(first, avro_long(1) + avro_text("ana") + b"\x02" + avro_text("old"))
    assert payloads(rows(spark, [old], how)) == [{"id": 1, "name": "ana", "gone": "old"}]
    second = _registered_freely(registry, subject, newer)
    new = confluent(
        second, order(2**40, "bo") + avro_double(1.25) + b"\x02" + avro_text("hi") + b"\x02" + avro_text("t") + b"\x00"
    )
    frame = decode(envelopes(spark, [old, new, old]), how)
    assert columns(frame) == {
        "id": "bigint", "name": "string", "gone": "string", "price": "double", "note": "string", "tags": "array<string>",
    }  # fmt: skip
    from_old = {"id": 1, "name": "ana", "gone": "old", "price": 9.5, "note": None, "tags": ["none"]}
    from_new = {"id": 2**40, "name": "bo", "gone": None, "price": 1.25, "note": "hi", "tags": ["t"]}
    assert payloads(in_order(frame)) == [from_old, from_new, from_old]
    later = DecodingState("avro", registry=ConfluentRegistry(registry.label), known=memory)  # the stream's next process
    (again,) = payloads(rows(spark, [old], later))
    assert list(again) == list(from_old)


@breadth
def test_nested_records_grow_with_their_own_defaults(spark: Any, registry: ConfluentRegistry, subject: str) -> None:
    def orders(**line: Any) -> str:
        inner = json.loads(record("Line", **line))
        return record("Order", id="long", lines={"type": "array", "items": inner}, first=["null", "Line"])

    one = registry.register(subject, orders(sku="string"), AVRO)
    two = _registered_freely(registry, subject, orders(sku="string", n=("int", 7)))
    old = confluent(one, avro_long(1) + b"\x02" + avro_text("a") + b"\x00" + b"\x02" + avro_text("b"))
    new = confluent(two, avro_long(2) + b"\x02" + avro_text("c") + avro_long(3) + b"\x00" + b"\x00")
    found = payloads(rows(spark, [old, new], DecodingState("avro", registry=registry)))
    assert found == [
        {"id": 1, "lines": [{"sku": "a", "n": 7}], "first": {"sku": "b", "n": 7}},
        {"id": 2, "lines": [{"sku": "c", "n": 3}], "first": None},
    ]


@pytest.mark.full
def test_a_new_schema_is_found_by_the_pass_that_writes(spark: Any, registry: ConfluentRegistry, subject: str) -> None:
    first = registry.register(subject, ORDER, AVRO)
    how = DecodingState("avro", registry=registry)
    rows(spark, [confluent(first, order(1, "a"))], how)
    second = registry.register(subject, record("Order", id="long", name="string", n=("long", 0)), AVRO)
    messages = envelopes(spark, [confluent(first, order(2, "b")), confluent(second, order(3, "c") + avro_long(4))])
    watch = Observation()
    frame = decode(messages, how, watch=watch)
    marked = errors(in_order(frame))
    assert watch.get == {"rows": 2, "bad": 1, "unlearned": 1}
    assert marked[0] is None
    assert str(marked[1]).startswith(NOT_LEARNED)
    assert learn(frame, how)
    again = decode(messages, how, watch=Observation())
    assert payloads(in_order(again)) == [{"id": 2, "name": "b", "n": 0}, {"id": 3, "name": "c", "n": 4}]


@breadth
def test_every_type_of_avro_has_its_own(spark: Any, registry: ConfluentRegistry, subject: str) -> None:
    schema = record(
        "All", flag="boolean", small="float", data="bytes", day={"type": "int", "logicalType": "date"},
        at={"type": "long", "logicalType": "timestamp-millis"},
        money={"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        kind={"type": "enum", "name": "Kind", "symbols": ["A", "B"]}, fixed={"type": "fixed", "name": "Four", "size": 4},
        map={"type": "map", "values": "long"}, nothing="null",
    )  # fmt: skip
    number = registry.register(subject, schema, AVRO)
    body = (
        b"\x01" + b"\x00\x00\xc0\x3f" + b"\x04\x01\x02" + avro_long(1) + avro_long(1500) + b"\x04\x04\xd2" + b"\x02"
        + b"wxyz" + b"\x02" + avro_text("k") + avro_long(5) + b"\x00"
    )  # fmt: skip
    (found,) = payloads(rows(spark, [confluent(number, body)], DecodingState("avro", registry=registry)))
    assert found == {
        "flag": True, "small": 1.5, "data": b"\x01\x02", "day": date(1970, 1, 2),
        "at": datetime(1970, 1, 1, 0, 0, 1, 500_000), "money": Decimal("12.34"), "kind": "B", "fixed": b"wxyz",
        "map": {"k": 5}, "nothing": None,
    }  # fmt: skip


@pytest.mark.full
def test_bad_avro_messages_say_why_and_leave_the_others_alone(
    spark: Any, registry: ConfluentRegistry, subject: str
) -> None:
    schema = registry.register(subject, ORDER, AVRO)
    good = confluent(schema, order(1, "ana"))
    described = f"the bytes are not what schema {schema} describes"
    no_id = "the message does not begin with the id of its schema"
    bad = {
        None: TOMBSTONE, b"": no_id, b"\x00\x00": no_id, b'{"id": 1}': no_id,
        confluent(schema, b""): described, good[:-1]: described, good + b"\x00": described,
        confluent(schema, b"\xff" * 12): described, confluent(schema, avro_long(1) + avro_long(2**30)): described,
        confluent(987654, order(1, "a")): f"the schema registry {registry.label} knows no schema 987654",
    }  # fmt: skip
    found = rows(spark, [good, *bad, good], DecodingState("avro", registry=registry))
    assert dict(zip(bad, errors(found)[1:-1], strict=True)) == bad
    assert [row["name"] for row in (found[0], found[-1])] == ["ana", "ana"]


@breadth
def test_a_row_of_nothing_but_nulls_is_a_good_row(spark: Any, registry: ConfluentRegistry, subject: str) -> None:
    schema = registry.register(subject, record("Maybe", a=["null", "long"], b=["null", "string"]), AVRO)
    assert payloads(rows(spark, [confluent(schema, b"\x00\x00")], DecodingState("avro", registry=registry))) == [
        {"a": None, "b": None}
    ]


@breadth
def test_a_schema_of_another_kind_is_the_rows_error(spark: Any, registry: ConfluentRegistry, subject: str) -> None:
    schema = registry.register(subject, 'syntax = "proto3"; message A { int64 id = 1; }', PROTOBUF)
    (error,) = errors(rows(spark, [confluent(schema, b"\x00")], DecodingState("avro", registry=registry)))
    assert error == f"schema {schema} cannot be used: it is a schema of PROTOBUF, and the stream's payload is avro"


@pytest.mark.full
@pytest.mark.parametrize("payload", ["avro", "protobuf"])
def test_a_registry_that_is_down_is_an_error_that_may_pass(spark: Any, payload: str) -> None:
    silent = ConfluentRegistry("http://ana:the-password@127.0.0.1:1")
    with pytest.raises(Unreachable, match=r"schema registry http://127.0.0.1:1 cannot be reached") as caught:
        decode(envelopes(spark, [confluent(1, b"\x00\x00")]), DecodingState(payload, registry=silent))
    assert caught.value.retryable
    assert "the-password" not in str(caught.value)


@breadth
def test_avro_without_a_registry_is_read_by_the_given_schema(spark: Any) -> None:
    how = DecodingState("avro", {"schema": ORDER})
    found = rows(spark, [order(1, "ana"), b"\x02"], how)
    assert errors(found) == [None, "the bytes are not what the given schema describes"]
    assert found[0]["name"] == "ana"
    with pytest.raises(DeclarationError, match="need a schema registry"):
        decode(envelopes(spark, [b""]), DecodingState("avro"))


@breadth
def test_declared_columns_are_exactly_these(spark: Any, registry: ConfluentRegistry, subject: str) -> None:
    schema = registry.register(subject, ORDER, AVRO)
    how = DecodingState("avro", {"name": "INT", "id": "STRING", "absent": "DATE"}, registry)
    found = rows(spark, [confluent(schema, order(1, "5")), confluent(schema, order(2, "x"))], how)
    assert errors(found) == [None, "a value does not fit its declared column"]
    assert [(row["name"], row["id"], row["absent"]) for row in found] == [(5, "1", None), (None, None, None)]


@breadth
def test_schemas_that_refer_to_others_are_made_whole(spark: Any, registry: ConfluentRegistry, subject: str) -> None:
    city = f"c{subject}"
    registry.register(city, json.dumps({**json.loads(record("City", name="string")), "namespace": "geo"}), AVRO)
    body = {
        "schema": record("Person", home="geo.City", work=["null", "geo.City"]),
        "references": [{"name": "geo.City", "subject": city, "version": 1}],
    }
    number = registry._request("POST", f"/subjects/{subject}/versions", body)["id"]
    value = confluent(number, avro_text("Rome") + b"\x02" + avro_text("Oslo"))
    assert payloads(rows(spark, [value], DecodingState("avro", registry=registry))) == [
        {"home": {"name": "Rome"}, "work": {"name": "Oslo"}}
    ]


PERSON = """syntax = "proto3";
package shop;
message Person {
  int64 id = 1;
  optional string name = 2;
  message Place { string city = 1; double lat = 2; }
  Place home = 3;
}
message Other { uint64 big = 1; }
"""
NEWER = PERSON.replace(
    "Place home = 3;", "Place home = 3;\n  repeated string tags = 4;\n  map<string, Place> trips = 5;"
)


@breadth
def test_protobuf_messages_become_rows(spark: Any, registry: ConfluentRegistry, subject: str) -> None:
    schema = registry.register(subject, PERSON, PROTOBUF)
    values = [
        confluent(schema, proto({1: 7, 2: "ana", 3: proto({1: "Rome", 2: 41.9})}), b"\x00"),
        confluent(schema, b"", b"\x00"),
    ]
    assert payloads(rows(spark, values, DecodingState("protobuf", registry=registry))) == [
        {"id": 7, "name": "ana", "home": {"city": "Rome", "lat": 41.9}}, {"id": 0, "name": None, "home": None},
    ]  # fmt: skip


@breadth
def test_a_protobuf_message_names_its_type_inside_the_schema(
    spark: Any, registry: ConfluentRegistry, subject: str
) -> None:
    schema = registry.register(subject, PERSON, PROTOBUF)
    other = confluent(schema, proto({1: 2**64 - 1}), b"\x02\x02")
    nested = confluent(schema, proto({1: "Oslo"}), b"\x04\x00\x00")
    how = DecodingState("protobuf", registry=registry)
    found = payloads(rows(spark, [other, nested], how))
    assert (found[0]["big"], found[1]["city"]) == (Decimal(2**64 - 1), "Oslo")
    absent = confluent(schema, b"", b"\x02\x0a")
    (error,) = errors(rows(spark, [absent], how))
    assert error == f"schema {schema}, message 5 cannot be used: it has no message 5"


@pytest.mark.full
def test_protobuf_schemas_change_in_mid_stream(spark: Any, registry: ConfluentRegistry, subject: str) -> None:
    first = registry.register(subject, PERSON, PROTOBUF)
    how = DecodingState("protobuf", registry=registry)
    old = confluent(first, proto({1: 1, 2: "ana"}), b"\x00")
    assert payloads(rows(spark, [old], how)) == [{"id": 1, "name": "ana", "home": None}]
    second = registry.register(subject, NEWER, PROTOBUF)
    trip = proto({1: "rome", 2: proto({1: "Rome"})})
    new = confluent(second, proto({1: 2, 4: "x", 5: trip}), b"\x00")
    assert payloads(rows(spark, [old, new], how)) == [
        {"id": 1, "name": "ana", "home": None, "tags": None, "trips": None},
        {"id": 2, "name": None, "home": None, "tags": ["x"], "trips": {"rome": {"city": "Rome", "lat": 0.0}}},
    ]


@breadth
def test_known_types_of_protobuf_have_their_own(spark: Any, registry: ConfluentRegistry, subject: str) -> None:
    text = """syntax = "proto3";
    import "google/protobuf/timestamp.proto";
    import "google/protobuf/wrappers.proto";
    message All {
      enum Kind { NONE = 0; GOOD = 1; }
      google.protobuf.Timestamp at = 1;
      google.protobuf.Int64Value maybe = 2;
      Kind kind = 3;
      bytes data = 4;
      All inside = 5;
      uint32 more = 6;
      oneof which { string left = 7; int32 right = 8; }
    }"""
    schema = registry.register(subject, text, PROTOBUF)
    inner = proto({3: 9, 6: 2**32 - 1})
    body = proto({1: proto({1: 1, 2: 500_000_000}), 2: proto({1: 5}), 3: 1, 4: b"\x01", 5: inner, 8: 3})
    (found,) = payloads(rows(spark, [confluent(schema, body, b"\x00")], DecodingState("protobuf", registry=registry)))
    assert found["at"] == datetime(1970, 1, 1, 0, 0, 1, 500_000)
    assert (found["maybe"], found["kind"], found["data"], found["more"]) == (5, "GOOD", b"\x01", 0)
    assert (found["left"], found["right"]) == (None, 3)
    assert (found["inside"]["kind"], found["inside"]["more"], found["inside"]["maybe"]) == ("9", 2**32 - 1, None)


@pytest.mark.full
def test_bad_protobuf_messages_say_why_and_leave_the_others_alone(
    spark: Any, registry: ConfluentRegistry, subject: str
) -> None:
    schema = registry.register(subject, PERSON, PROTOBUF)
    good = confluent(schema, proto({1: 1, 2: "ana"}), b"\x00")
    described = f"the bytes are not what schema {schema} describes"
    no_id = "the message does not begin with the id of its schema"
    bad = {
        None: TOMBSTONE, b"": no_id, b"\x01" + good[1:]: no_id, good[:-1]: described,
        confluent(schema, b"\xff" * 12, b"\x00"): described, confluent(schema, proto({2: b"\xff"}), b"\x00"): described,
        confluent(987654, b"", b"\x00"): f"the schema registry {registry.label} knows no schema 987654",
    }  # fmt: skip
    found = rows(spark, [good, *bad, good], DecodingState("protobuf", registry=registry))
    assert dict(zip(bad, errors(found)[1:-1], strict=True)) == bad
    assert [row["name"] for row in (found[0], found[-1])] == ["ana", "ana"]


@breadth
def test_protobuf_without_a_registry_is_read_by_the_given_schema(spark: Any) -> None:
    body = proto({1: 7, 2: "ana"})
    assert payloads(rows(spark, [body], DecodingState("protobuf", {"schema": PERSON})))[0]["id"] == 7
    named = DecodingState("protobuf", {"schema": PERSON, "message": "shop.Other"})
    assert payloads(rows(spark, [proto({1: 3})], named)) == [{"big": Decimal(3)}]
    with pytest.raises(DeclarationError, match="given PROTOBUF schema cannot be used"):
        decode(envelopes(spark, [b""]), DecodingState("protobuf", {"schema": "message {"}))


def _registered_freely(registry: ConfluentRegistry, subject: str, text: str) -> Any:
    """Registered under a subject of its own: what readers may expect of a subject is not under test."""
    return registry.register(f"next-{subject}", text, AVRO)
