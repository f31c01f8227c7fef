"""What the tests of payloads share: envelopes, a memory, and Avro and Protobuf bytes written by hand."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from ematix_flow.contract.stream import ENVELOPE
from ematix_flow.messages.decode import DecodingState, decode

SENT = datetime(2026, 3, 1, 12, 0, tzinfo=timezone.utc)
HEADERS = [("trace", b"\x01"), ("origin", b"shop")]
SCHEMA = ", ".join(f"`{name}` {kind}" for name, kind in ENVELOPE)


class Memory:
    """A schema memory that a test can look into."""

    def __init__(self) -> None:
        self.kept: list[str] = []

    def load(self) -> str | None:
        return self.kept[-1] if self.kept else None

    def save(self, text: str) -> None:
        self.kept.append(text)


def envelopes(spark: Any, values: Sequence[bytes | None]) -> Any:
    """Messages with these values, as a broker gives them."""
    rows = [(b"k%d" % at, value, HEADERS, "orders", 3, 100 + at, f"m{at}", SENT) for at, value in enumerate(values)]
    return spark.createDataFrame(rows, SCHEMA)


def objects(spark: Any, *values: Any) -> Any:
    """Messages with these values as JSON."""
    return envelopes(spark, [json.dumps(value).encode() for value in values])


def rows(spark: Any, values: Sequence[bytes | None], how: DecodingState) -> list[dict[str, Any]]:
    """The decoded messages in their order."""
    return in_order(decode(envelopes(spark, values), how))


def json_rows(spark: Any, values: Sequence[Any], how: DecodingState) -> list[dict[str, Any]]:
    """The same for values that are written as JSON first."""
    return in_order(decode(objects(spark, *values), how))


def in_order(frame: Any) -> list[dict[str, Any]]:
    """Rows by their offsets, as plain values."""
    found = [row.asDict(recursive=True) for row in frame.collect()]
    return sorted(found, key=lambda row: row["_source"]["offset"])


def payloads(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Only what the payload said; every row must have been decoded."""
    assert [row["_error"] for row in found] == [None] * len(found)
    return [{name: value for name, value in row.items() if not name.startswith("_")} for row in found]


def errors(found: list[dict[str, Any]]) -> list[str | None]:
    """What went wrong; a row with an error has no values."""
    for row in found:
        if row["_error"] is not None:
            assert all(value is None for name, value in row.items() if not name.startswith("_"))
    return [row["_error"] for row in found]


def columns(frame: Any) -> dict[str, str]:
    """The payload's columns and their types."""
    return {field.name: field.dataType.simpleString() for field in frame.schema if not field.name.startswith("_")}


def confluent(schema_id: Any, body: bytes, path: bytes = b"") -> bytes:
    """A payload with the number of its schema before it."""
    return b"\x00" + int(schema_id).to_bytes(4, "big") + path + body


def avro_long(number: int) -> bytes:
    """A whole number, as Avro writes it."""
    return varint((number << 1) ^ (number >> 63))


def avro_text(text: str) -> bytes:
    """Text, as Avro writes it."""
    data = text.encode()
    return avro_long(len(data)) + data


def avro_double(number: float) -> bytes:
    """A number, as Avro writes it."""
    return struct.pack("<d", number)


def varint(number: int) -> bytes:
    """A number of variable length, as Protobuf and Avro write it."""
    number &= (1 << 64) - 1
    data = bytearray()
    while number > 0x7F:
        data.append((number & 0x7F) | 0x80)
        number >>= 7
    return bytes([*data, number])


def proto(fields: Mapping[int, int | str | bytes | float]) -> bytes:
    """A Protobuf message of numbers, texts, nested messages and doubles, by field number."""
    data = b""
    for number, value in fields.items():
        if isinstance(value, float):
            data += varint(number << 3 | 1) + struct.pack("<d", value)
        elif isinstance(value, int):
            data += varint(number << 3) + varint(value)
        else:
            raw = value.encode() if isinstance(value, str) else value
            data += varint(number << 3 | 2) + varint(len(raw)) + raw
    return data


def record(name: str, /, **fields: Any) -> str:
    """An Avro record; a field is a type, or a type with its default."""
    made = [
        {"name": field, "type": kind[0], "default": kind[1]}
        if isinstance(kind, tuple)
        else {"name": field, "type": kind}
        for field, kind in fields.items()
    ]
    return json.dumps({"type": "record", "name": name, "fields": made})
