"""Avro and Protobuf in single batches, by the schemas of the connection's registry."""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ematix_flow.declare.connections import KafkaConnection
from ematix_flow.foundation.errors import BadValue, ConfigError, FlowError, Unsupported
from ematix_flow.foundation.lazy_imports import LazyModule, pa
from ematix_flow.foundation.redact import mask
from ematix_flow.messages import avro_schema, protobuf_arrow, protobuf_schema
from ematix_flow.messages.encode import subject_of
from ematix_flow.messages.framing import SchemaPrefix, make_prefix, parse_prefix
from ematix_flow.messages.registries.registry import (
    AVRO,
    GLUE_WIRE,
    PROTOBUF,
    RegisteredSchema,
    SchemaId,
    SchemaRegistry,
    open_registry,
)

_RAW = 'payload_format="raw_bytes" shows what it holds'
fastavro = LazyModule("fastavro", needed_by="Avro in single batches", package="fastavro", extra="kafka")
KINDS = {"avro": AVRO, "protobuf": PROTOBUF}


class RegistryPayloads:
    """The registry of one connection, with the decoders of the schemas fetched from it."""

    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry
        self._readers: dict[tuple[SchemaId, tuple[int, ...]], Any] = {}

    @classmethod
    def of(cls, connection: KafkaConnection) -> RegistryPayloads:
        """Return the schemas of a connection's registry; raise ConfigError where it has none."""
        ready = connection.resolved()
        named = ready.schema_registry or ready.schema_registry_url
        if not named:
            raise ConfigError(
                f"payload_format {ready.payload_format!r} needs a schema registry",
                where=ready.declared_at,
                hint='add schema_registry_url="http://localhost:8081"',
            )
        return cls(open_registry(named))

    def rows(self, kind: str, payloads: Sequence[bytes | None], places: Sequence[str]) -> list[dict[str, Any]]:
        """Return the decoded messages, each by its writer's schema; one without a payload becomes an empty row."""
        return [
            self._row(kind, payload, place) if payload else {} for payload, place in zip(payloads, places, strict=True)
        ]

    def messages(self, kind: str, topic: str, batch: Any) -> list[bytes]:
        """Return a batch encoded by the newest schema of its topic; a topic without one gets the batch's own schema."""
        number, schema = self._schema_for(kind, topic, batch)
        prefix = make_prefix(number, wire=self._registry.wire, kind=kind)
        try:
            bodies = (
                _avro_bodies(schema, batch) if kind == AVRO else _protobuf_bodies(schema, self._registry.wire, batch)
            )
            return [prefix + body for body in bodies]
        except FlowError:
            raise
        except Exception as exc:
            raise BadValue(
                f"a row does not fit the newest schema of {topic}: {mask(str(exc))}",
                hint="give the batch the columns and types of that schema",
            ) from exc

    def _schema_for(self, kind: str, topic: str, batch: Any) -> tuple[SchemaId, RegisteredSchema]:
        subject = subject_of(topic, self._registry)
        known = self._registry.latest(subject)
        if known is not None:
            return known
        columns = _spark_columns(batch.schema)
        if kind == AVRO:
            text = avro_schema.avro_schema_of(columns, name=topic)
        else:
            text = protobuf_schema.proto_text_of(columns, name=topic, former=None)
        return self._registry.register(subject, text, kind), RegisteredSchema(kind, text)

    def _row(self, kind: str, payload: bytes, place: str) -> dict[str, Any]:
        try:
            meaning, body = split(payload, wire=self._registry.wire, kind=kind)
            key = (meaning.schema_id, meaning.indexes)
            if key not in self._readers:
                self._readers[key] = self._reader(kind, meaning)
            row = self._readers[key](body)
        except FlowError:
            raise
        except Exception as exc:  # each decoder has errors of its own
            raise BadValue(
                f"message {place} does not fit its schema: {mask(str(exc))}", hint=_RAW, message=place
            ) from exc
        if not isinstance(row, dict):
            raise BadValue(f"message {place} is no record: {type(row).__name__}", hint=_RAW, message=place)
        return row

    def _reader(self, kind: str, meaning: SchemaPrefix) -> Callable[[bytes], Any]:
        schema = self._registry.schema(meaning.schema_id)
        return _avro_reader(schema) if kind == AVRO else _protobuf_reader(schema, self._registry.wire, meaning)


def _avro_reader(schema: RegisteredSchema) -> Callable[[bytes], Any]:
    parsed = fastavro.parse_schema(avro_schema.complete_schema(schema)[0])

    def read(body: bytes) -> Any:
        text = io.BytesIO(body)
        row = fastavro.schemaless_reader(text, parsed)
        if text.read(1):
            raise ValueError("it is longer than its schema says")
        return row

    return read


def _avro_bodies(schema: RegisteredSchema, batch: Any) -> Iterator[bytes]:
    parsed = fastavro.parse_schema(avro_schema.complete_schema(schema)[0])
    for row in batch.to_pylist():
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, row)
        yield out.getvalue()


def _protobuf_reader(schema: RegisteredSchema, wire: str, meaning: SchemaPrefix) -> Callable[[bytes], Any]:
    from pyspark.sql.pandas.types import to_arrow_type

    descriptors = protobuf_schema.compile_schema(schema)
    name = protobuf_schema.message_name(descriptors, meaning.indexes, wire=wire)
    kind = protobuf_arrow.spark_type(protobuf_arrow.message_class(descriptors, name).DESCRIPTOR)
    if kind is None:
        return lambda _: {}
    read = protobuf_arrow.payload_reader(descriptors, name, to_arrow_type(kind))

    def one(body: bytes) -> Any:
        row = read(pa.array([body], pa.binary())).to_pylist()[0]
        if row is None:
            raise ValueError(f"it is no {name}")
        return row

    return one


def _protobuf_bodies(schema: RegisteredSchema, wire: str, batch: Any) -> list[bytes]:
    descriptors = protobuf_schema.compile_schema(schema)
    # prefix_for writes the first message: the first by position (Confluent), or by Glue's numbering.
    name = protobuf_schema.message_name(descriptors, (0,), wire=wire)
    rows = pa.StructArray.from_arrays(batch.columns, names=batch.schema.names)
    written: list[bytes] = protobuf_arrow.payload_writer(descriptors, name)(rows).to_pylist()
    return written


def _spark_columns(schema: Any) -> Any:
    """Return the columns as Spark types, from which schemas are generated."""
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import from_arrow_schema

    try:
        return from_arrow_schema(schema)
    except PySparkException as exc:
        raise Unsupported(
            f"no schema can be made of these columns: {mask(str(exc).splitlines()[0])}",
            hint="cast them before they are written, or register a schema of your own",
        ) from exc


def split(payload: bytes, *, wire: str, kind: str) -> tuple[SchemaPrefix, bytes]:
    """Return the parsed prefix of a payload, and the payload behind it."""
    length = 18 if wire == GLUE_WIRE else 5
    is_right = payload[:1] == (b"\x03" if wire == GLUE_WIRE else b"\x00")
    if len(payload) < length or not is_right:
        raise ValueError("no id of a schema stands before it")
    if kind == PROTOBUF and not (wire == GLUE_WIRE and payload[1] == 5):
        length = _past_numbers(payload, length, only=wire == GLUE_WIRE)
    meaning, body = parse_prefix(payload[:length], wire=wire, kind=kind), payload[length:]
    if not meaning.is_compressed:
        return meaning, body
    body = zlib.decompress(body)
    if kind != PROTOBUF:
        return meaning, body
    number, end = _number(body, 0)  # the message number is compressed, too
    return SchemaPrefix(meaning.schema_id, (number,), True), body[end:]


def _past_numbers(payload: bytes, at: int, *, only: bool) -> int:
    """Return the position behind the numbers that choose a Protobuf message: one (Glue), or a count and as many."""
    first, end = _number(payload, at)
    if only:
        return end
    for _ in range(first >> 1):  # zigzag, and never negative
        _, end = _number(payload, end)
    return end


def _number(payload: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = payload[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number, at
