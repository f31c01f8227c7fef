"""Rows as messages: a key, a value in the payload's form, and headers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ematix_flow.dataplane.spark_tasks import on_arrow
from ematix_flow.dataplane.type_mapping import JSON_AS_IT_IS
from ematix_flow.foundation.errors import DeclarationError, MissingColumn, PlanError, RunFailed
from ematix_flow.foundation.lazy_imports import f, t
from ematix_flow.foundation.names import did_you_mean
from ematix_flow.messages import avro_rows, avro_schema, framing, protobuf_arrow, protobuf_schema
from ematix_flow.messages.registries.registry import AVRO, GLUE_WIRE, PROTOBUF, RegisteredSchema, SchemaRegistry
from ematix_flow.messages.type_widening import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

HEADERS = "_headers"
"""The column that becomes the headers of a message, ARRAY<STRUCT<key STRING, value BINARY>>."""
_OWN = ("_source", "_raw", "_error", HEADERS)
_HEADER_TYPE = "array<struct<key:string,value:binary>>"
_PAYLOADS = ("json", "raw_bytes", "avro", "protobuf")
_JSON = {**JSON_AS_IT_IS, "timeZone": "UTC"}


def encode(
    frame: DataFrame,
    payload: str = "json",
    *,
    key_column: str | None = None,
    columns: Sequence[str] | None = None,
    carried: Sequence[str] = (),
    subject: str | None = None,
    registry: SchemaRegistry | None = None,
) -> DataFrame:
    """Return the rows as key, value and headers, with the `carried` columns unchanged beside them.

    The value contains `columns`, or by default all except the messages' own ones (`_source`, `_raw`, `_error`,
    `_headers`) and the carried ones. avro and protobuf register their schema under `subject`.
    """
    left_out = {*_OWN, *carried}
    rows = [name for name in frame.columns if name not in left_out] if columns is None else list(columns)
    return frame.select(
        _key(frame, key_column).alias("key"),
        _value(frame.select(*map(quoted, rows)), payload, subject=subject, registry=registry).alias("value"),
        (f.col(HEADERS) if HEADERS in frame.columns else f.lit(None)).cast(_HEADER_TYPE).alias("headers"),
        *(f.col(quoted(name)) for name in carried),
    )


def subject_of(place: str, registry: SchemaRegistry | None) -> str:
    """Return the subject of a topic's value schema, as the registries' own serializers choose it."""
    return place if registry is not None and registry.wire == GLUE_WIRE else f"{place}-value"


def _key(frame: DataFrame, name: str | None) -> Column:
    if name is None:
        return f.lit(None).cast("binary")
    if name not in frame.columns:
        raise MissingColumn(f"the rows have no column {name!r} for the key", hint=did_you_mean(name, frame.columns))
    return _as_bytes(f.col(quoted(name)), frame.schema[name].dataType)


def _as_bytes(column: Column, kind: DataType) -> Column:
    """Return text as UTF-8, bytes unchanged, anything else as JSON writes it."""
    if isinstance(kind, (t.BinaryType, t.StringType)):
        return column.cast("binary")
    if isinstance(kind, (t.StructType, t.ArrayType, t.MapType)):
        return f.to_json(column, _JSON).cast("binary")
    if isinstance(kind, t.TimestampType):
        return f.date_format(column, _JSON["timestampFormat"]).cast("binary")
    return column.cast("string").cast("binary")


def _value(rows: DataFrame, payload: str, *, subject: str | None, registry: SchemaRegistry | None) -> Column:
    if payload == "json":
        return f.to_json(_struct(rows.schema), _JSON).cast("binary")
    if payload == "raw_bytes":
        return _raw_bytes(rows.schema)
    if payload not in _PAYLOADS:
        raise DeclarationError(f"there is no payload {payload!r}", hint=did_you_mean(payload, _PAYLOADS))
    if registry is None or not subject:
        raise DeclarationError(
            f"{payload} messages are written with a schema registry, and the target names none",
            hint="give its connection a schema_registry",
        )
    write = _avro if payload == "avro" else _protobuf
    return write(rows.schema, subject, registry)


def _raw_bytes(columns: StructType) -> Column:
    own = next((one for one in columns.fields if one.name == "payload"), None)
    chosen = own or (columns.fields[0] if len(columns.fields) == 1 else None)
    if chosen is None or not isinstance(chosen.dataType, (t.BinaryType, t.StringType)):
        raise PlanError(
            "raw_bytes messages are written from one column of bytes or text",
            hint="select it as `payload`: SELECT value AS payload FROM source",
        )
    return f.col(quoted(chosen.name)).cast("binary")


def _avro(columns: StructType, subject: str, registry: SchemaRegistry) -> Column:
    text = avro_schema.avro_schema_of(columns, name=subject.removesuffix("-value"))
    head = framing.make_prefix(registry.register(subject, text, AVRO), wire=registry.wire, kind=AVRO)
    return f.concat(f.lit(head), avro_rows.to_avro(_struct(columns), text))


def _protobuf(columns: StructType, subject: str, registry: SchemaRegistry) -> Column:
    latest = registry.latest(subject)
    former = protobuf_schema.compile_schema(latest[1]) if latest is not None and latest[1].kind == PROTOBUF else None
    text = protobuf_schema.proto_text_of(columns, name=subject.removesuffix("-value"), former=former)
    try:
        descriptors = protobuf_schema.compile_schema(RegisteredSchema(PROTOBUF, text))
    except protobuf_schema.NotCompiled as error:
        raise RunFailed(f"no Protobuf schema can be made of the columns: {error}", hint="rename the columns") from None
    head = framing.make_prefix(registry.register(subject, text, PROTOBUF), wire=registry.wire, kind=PROTOBUF)
    name = protobuf_schema.message_name(descriptors, (0,), wire=registry.wire)
    plain = f.struct(*(_for_protobuf(f.col(quoted(one.name)), one.dataType).alias(one.name) for one in columns.fields))
    return f.concat(f.lit(head), on_arrow(protobuf_arrow.payload_writer(descriptors, name), "binary")(plain))


def _for_protobuf(column: Column, kind: DataType) -> Column:
    """Return the column with the types that Protobuf lacks converted to text."""
    if isinstance(kind, t.StructType):
        parts = [_for_protobuf(column.getField(one.name), one.dataType).alias(one.name) for one in kind.fields]
        return f.when(column.isNotNull(), f.struct(*parts))
    if isinstance(kind, t.ArrayType):
        element = kind.elementType
        return f.transform(column, lambda item: _for_protobuf(item, element))
    if isinstance(kind, t.MapType):
        value = kind.valueType
        return f.transform_values(column, lambda _, item: _for_protobuf(item, value))
    if isinstance(kind, t.TimestampNTZType):
        return f.date_format(column, _JSON["timestampNTZFormat"])
    as_text = (t.DateType, t.DecimalType, t.NullType)
    return column.cast("string") if isinstance(kind, as_text) else column


def _struct(columns: StructType) -> Column:
    return f.struct(*(f.col(quoted(name)) for name in columns.fieldNames()))
