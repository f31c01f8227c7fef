"""Schemas that are made of columns, and what the bytes before a payload say; without Spark and without a registry."""

from __future__ import annotations

import uuid
import zlib

import pyarrow as pa
import pytest
from pyspark.sql import types as t

from ematix_flow.messages import framing, protobuf_schema
from ematix_flow.messages.registries.registry import GLUE_WIRE, PROTOBUF, RegisteredSchema


def made_of(former: str | None, **columns: t.DataType) -> str:
    before = None if former is None else protobuf_schema.compile_schema(RegisteredSchema(PROTOBUF, former))
    kind = t.StructType([t.StructField(name, column) for name, column in columns.items()])
    return protobuf_schema.proto_text_of(kind, name="orders", former=before)


def test_numbers_of_dropped_columns_stay_reserved_in_every_later_schema() -> None:
    first = made_of(None, id=t.LongType(), name=t.StringType(), note=t.StringType())
    second = made_of(first, id=t.LongType(), name=t.StringType())
    assert "reserved 3;" in second
    assert made_of(second, id=t.LongType(), name=t.StringType()) == second
    third = made_of(made_of(second, id=t.LongType(), name=t.StringType()), id=t.LongType(), more=t.StringType())
    assert "reserved 2, 3;" in third
    assert "more = 4;" in third


def test_numbers_of_dropped_fields_of_a_record_stay_reserved() -> None:
    wide = t.StructType([t.StructField("city", t.StringType()), t.StructField("zip", t.StringType())])
    narrow = t.StructType(wide.fields[:1])
    second = made_of(made_of(None, home=wide), home=narrow)
    again = made_of(second, home=narrow)
    assert again == second
    assert "reserved 2;" in again


def test_ranges_that_were_reserved_by_hand_stay() -> None:
    former = 'syntax = "proto3";\nmessage Orders {\n  reserved 5 to 7, 9;\n  optional int64 id = 1;\n}\n'
    made = made_of(former, id=t.LongType(), more=t.StringType())
    assert "reserved 5 to 7, 9;" in made
    assert "more = 10;" in made


def test_the_number_of_a_message_is_found_inside_a_compressed_payload() -> None:
    body = b"\x08\x05" * 1000
    inside = [zlib.compress(head + body) for head in (b"\x00", b"\x07", b"\x80\x01")]
    asked = pa.array([*inside, b"no zlib", zlib.compress(b""), zlib.compress(b"\xff" * 9), b"", None], pa.binary())
    found = framing._numbers_inside(asked).to_pylist()
    assert found == [b"\x00", b"\x07", b"\x80\x01", None, None, None, None, None]
    head = b"\x03\x05" + uuid.uuid4().bytes
    meaning = framing.parse_prefix(head + b"\x80\x01", wire=GLUE_WIRE, kind=PROTOBUF)
    assert (meaning.indexes, meaning.is_compressed) == ((128,), True)


def test_glue_counts_messages_by_name_and_never_guesses_one() -> None:
    text = 'syntax = "proto3"; message B { int64 b = 1; } message A { int64 a = 1; }'
    descriptors = protobuf_schema.compile_schema(RegisteredSchema(PROTOBUF, text))
    assert [protobuf_schema.message_name(descriptors, (index,), wire=GLUE_WIRE) for index in (0, 1)] == ["A", "B"]
    with pytest.raises(protobuf_schema.NotCompiled, match="do not say which of its messages"):
        protobuf_schema.message_name(descriptors, (), wire=GLUE_WIRE)
