"""The schema id of a message: in the bytes before the payload (Confluent, Glue) or in headers (Apicurio).

The bytes before the payload are a row's *prefix*. A stream has few distinct prefixes, so rows compare them as bytes and
each is parsed once, here. An Apicurio header becomes a prefix as well: a letter for the header, then its bytes.
"""

from __future__ import annotations

import uuid
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ematix_flow.dataplane.spark_tasks import on_arrow
from ematix_flow.foundation.lazy_imports import f, pa
from ematix_flow.messages.registries.registry import (
    CONFLUENT_WIRE,
    CONTENT_ID,
    GLOBAL_ID,
    GLUE_WIRE,
    PROTOBUF,
    SchemaId,
)

if TYPE_CHECKING:
    from pyspark.sql import Column

_CONFLUENT_LENGTH, _GLUE_LENGTH = 5, 18
_GLUE_VERSION, _PLAIN, _ZLIB = 3, 0, 5
_LONGEST_NUMBER = 5
_HEADERS = {b"G": ("apicurio.value.globalId", GLOBAL_ID), b"C": ("apicurio.value.contentId", CONTENT_ID)}
"""Apicurio's headers, each a number of eight bytes, by the letter that begins their prefix."""


@dataclass(frozen=True)
class SchemaPrefix:
    """The parsed bytes before a payload."""

    schema_id: SchemaId
    indexes: tuple[int, ...] = ()
    """The message within a Protobuf schema: Confluent's path of positions, Glue's single number; empty for Avro."""
    is_compressed: bool = False
    is_header: bool = False
    """Whether the id comes from a header, and the whole value is the payload."""

    @property
    def label(self) -> str:
        """Return the schema id, and the message's path, for error messages."""
        where = f", message {'.'.join(map(str, self.indexes))}" if self.indexes and any(self.indexes) else ""
        return f"schema {self.schema_id}{where}"


def prefix_of(value: Column, headers: Column, *, wire: str, kind: str) -> Column:
    """Return the prefix of each message as a column; NULL where a message has none."""
    before = _before(value, wire=wire, kind=kind)
    if wire == GLUE_WIRE or kind == PROTOBUF:
        return before
    header_prefixes = [f.concat(f.lit(letter), _header(headers, name)) for letter, (name, _) in _HEADERS.items()]
    # A tombstone has no schema, but may have the header.
    return f.when(value.isNotNull(), f.coalesce(*(f.when(f.length(one) == 9, one) for one in header_prefixes), before))


def _header(headers: Column, name: str) -> Column:
    return f.try_element_at(f.filter(headers, lambda one: one["key"] == name), f.lit(1))["value"]


def _before(value: Column, *, wire: str, kind: str) -> Column:
    if wire == GLUE_WIRE:
        head, length, mark = f.substring(value, 1, 2), _GLUE_LENGTH, (b"\x03\x00", b"\x03\x05")
        begins = head.isin(*(f.lit(one) for one in mark))
    else:
        head, length = f.substring(value, 1, 1), _CONFLUENT_LENGTH
        begins = head == f.lit(b"\x00")
    prefix = f.when(begins & (f.length(value) >= length), f.substring(value, 1, length))
    if kind != PROTOBUF:
        return prefix
    after = f.lit(length + 1)
    one = f.when(prefix.isNotNull(), f.substr(value, f.lit(1), f.lit(length) + _varint_length(value, after)))
    if wire == GLUE_WIRE:
        is_compressed = prefix.isNotNull() & (f.substring(value, 2, 1) == f.lit(b"\x05"))
        number = on_arrow(_numbers_inside, "binary")(f.when(is_compressed, f.substr(value, after)))
        return f.when(is_compressed, f.coalesce(f.concat(prefix, number), prefix)).otherwise(one)
    first = f.substring(value, length + 1, 1)
    return f.when(first == f.lit(b"\x00"), one).otherwise(
        f.when(prefix.isNotNull(), f.substr(value, f.lit(1), _path_end(value, length)))
    )


def _path_end(value: Column, length: int) -> Column:
    """Return the position of the last byte of Confluent's path: its length, then each position, as varints."""
    written = f.conv(f.hex(f.substring(value, length + 1, 1)), 16, 10).cast("int")
    count = f.floor(written / 2).cast("int")  # zigzag, and never negative
    return f.when(
        (written % 2 == 0) & count.between(1, 16),
        f.aggregate(f.sequence(f.lit(1), count), f.lit(length + 2), lambda at, _: at + _varint_length(value, at)) - 1,
    )


def _varint_length(value: Column, at: Column) -> Column:
    more = f.lit(b"\x80")
    one, two = f.substr(value, at, f.lit(1)), f.substr(value, at + 1, f.lit(1))
    return f.when(one < more, 1).when(two < more, 2).otherwise(3)


def body_of(value: Column, prefix: bytes, meaning: SchemaPrefix) -> Column:
    """Return the payload behind a known prefix."""
    if meaning.is_header:
        return value
    if not meaning.is_compressed:
        return f.substr(value, f.lit(len(prefix) + 1))
    inflated = on_arrow(_inflated, "binary")(f.substr(value, f.lit(_GLUE_LENGTH + 1)))
    number = len(prefix) - _GLUE_LENGTH  # the message number of Protobuf was compressed, too
    return f.substr(inflated, f.lit(number + 1)) if number else inflated


def parse_prefix(prefix: bytes, *, wire: str, kind: str) -> SchemaPrefix:
    """Return the parsed prefix.

    >>> parse_prefix(bytes([0, 0, 0, 0, 7]), wire="confluent", kind="AVRO").label
    'schema 7'
    """
    if wire == GLUE_WIRE:
        compressed = prefix[1] == _ZLIB
        version = str(uuid.UUID(bytes=prefix[2:_GLUE_LENGTH]))
        return SchemaPrefix(version, tuple(_varints(prefix[_GLUE_LENGTH:])) if kind == PROTOBUF else (), compressed)
    if prefix[:1] in _HEADERS:
        return SchemaPrefix(f"{_HEADERS[prefix[:1]][1]}{int.from_bytes(prefix[1:], 'big')}", is_header=True)
    number = int.from_bytes(prefix[1:_CONFLUENT_LENGTH], "big")
    if kind != PROTOBUF:
        return SchemaPrefix(number)
    path = [(one >> 1) ^ -(one & 1) for one in _varints(prefix[_CONFLUENT_LENGTH:])]
    return SchemaPrefix(number, (0,) if path == [0] else tuple(path[1:]))


def make_prefix(schema_id: SchemaId, *, wire: str, kind: str) -> bytes:
    """Return the prefix of payloads of this schema; for Protobuf, of its first message."""
    if wire == CONFLUENT_WIRE:
        return b"\x00" + int(schema_id).to_bytes(4, "big") + (b"\x00" if kind == PROTOBUF else b"")
    head = bytes([_GLUE_VERSION, _PLAIN]) + uuid.UUID(str(schema_id)).bytes
    return head + (b"\x00" if kind == PROTOBUF else b"")


def _varints(data: bytes) -> Iterator[int]:
    number = shift = 0
    for byte in data:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            yield number
            number = shift = 0


def _inflated(column: pa.Array) -> pa.Array:
    """Return zlib data inflated, NULL for invalid data: Spark has no such function."""
    return _of_each(column, zlib.decompress)


def _numbers_inside(column: pa.Array) -> pa.Array:
    """Return the bytes of the message number at the beginning of compressed payloads; NULL where there are none."""
    return _of_each(column, _number_inside)


def _number_inside(data: bytes) -> bytes | None:
    begin = zlib.decompressobj().decompress(data, _LONGEST_NUMBER)
    end = next((at for at, byte in enumerate(begin, 1) if byte < 0x80), None)
    return None if end is None else begin[:end]


def _of_each(column: pa.Array, function: Callable[[bytes], bytes | None]) -> pa.Array:
    def one(data: bytes | None) -> bytes | None:
        try:
            return None if data is None else function(data)
        except zlib.error:
            return None

    return pa.array([one(data) for data in column.to_pylist()], type=pa.binary())
