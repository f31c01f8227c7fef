"""Messages that refer to their writer's schema: each is decoded by its own, to rows of one common shape."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any, Protocol

from ematix_flow.foundation.errors import DeclarationError
from ematix_flow.foundation.lazy_imports import f, t
from ematix_flow.foundation.redact import mask
from ematix_flow.messages import framing
from ematix_flow.messages.decoding_state import (
    FIRST_LOOK,
    KINDS,
    MOST_MISSING,
    NOT_LEARNED,
    TOMBSTONE,
    DecodedMessages,
    DecodingState,
    declared_columns,
    forget_missing_schemas,
    known_columns,
    remember_columns,
)
from ematix_flow.messages.registries.registry import RegisteredSchema, UnknownSchema
from ematix_flow.messages.type_widening import Path, nullable_type, project_value, widen_structs

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

_PREFIX, _ROW = "_flow_prefix", "_flow_row"
_SHOWN = 200
_MOST_PREFIXES = 1000
_NO_IDS = (
    f"the schema registry knows none of {MOST_MISSING} schemas whose ids the messages seem to begin with: they were probably "
    "written without an id before the payload (a serializer's setting, such as Apicurio's apicurio.registry.headers.enabled)"
)
PLAIN = "plain"
"""The wire of payloads without a prefix."""
Default = Callable[["DataType"], "Column | None"]


class UnusableSchema(Exception):
    """The error of a schema that exists but cannot be used for decoding, with the reason."""


class PayloadCodec(Protocol):
    """A decoder of the payloads of one schema."""

    def row_type(self, spark: SparkSession) -> DataType:
        """Return the Spark type of a payload; raise Unusable where there is none."""

    def opened(self, body: Column) -> Column:
        """Return the parsed payload as a column, which is evaluated once per row."""

    def row(self, opened: Column) -> Column:
        """Return the row inside a parsed payload; NULL where the bytes do not follow this schema."""

    def defaults(self, spark: SparkSession) -> Mapping[Path, Default]:
        """Return the defaults of fields that older payloads lack."""

    def kinds(self) -> Mapping[str, str]:
        """Return the types of a changed row's columns in Kafka Connect's schema; empty for another schema."""


CodecMaker = Callable[[RegisteredSchema, framing.SchemaPrefix, str], PayloadCodec]
"""A factory of codecs from a schema, a message's prefix and the wire."""


@dataclass(frozen=True)
class KnownWriter:
    """A schema that messages were written with, and its decoder."""

    meaning: framing.SchemaPrefix
    codec: PayloadCodec
    columns: StructType
    order: int
    is_record: bool
    defaults: Mapping[Path, Default] = field(default_factory=dict)


def read_by_schema(frame: DataFrame, decoding: DecodingState, *, kind: str, codec: CodecMaker) -> DecodedMessages:
    """Decode each message by its own schema; `why` marks those whose schema is not known yet."""
    value = f.col("value")
    if decoding.registry is None:
        _fetch_configured_schema(frame.sparkSession, decoding, kind=kind, codec=codec)
        prefix = f.when(value.isNotNull(), f.lit(b""))
    else:
        forget_missing_schemas(decoding)
        prefix = framing.prefix_of(value, f.col("headers"), wire=decoding.registry.wire, kind=kind)
        if not decoding.learned.writers:
            _fetch_schemas(
                _prefixes(frame.limit(FIRST_LOOK), prefix), frame.sparkSession, decoding, kind=kind, codec=codec
            )
    target = _target(decoding)
    plan = _opened_columns(frame.withColumn(_PREFIX, prefix), decoding)
    plan = plan.withColumn(_ROW, _row(decoding, target))
    row = f.col(_ROW)
    columns = tuple((one.name, row.getField(one.name)) for one in target.fields)
    types = list(target.fields)
    if decoding.of_connect:
        columns += ((KINDS, _kinds(decoding)),)
        types.append(t.StructField(KINDS, t.MapType(t.StringType(), t.StringType())))
    return DecodedMessages(plan, columns, t.StructType(types), _error_reason(decoding, target))


def _kinds(decoding: DecodingState) -> Column:
    """Return a column with the types that each message's schema has for the columns of a row."""
    cases = [
        f.when(f.col(_PREFIX) == f.lit(prefix), f.lit(json.dumps(writer.codec.kinds())))
        for prefix, writer in decoding.learned.writers.items()
    ]
    return f.from_json(f.coalesce(*cases) if cases else f.lit(None).cast("string"), "MAP<STRING, STRING>")


def learn_schemas(unread: DataFrame, decoding: DecodingState, *, kind: str, codec: CodecMaker) -> bool:
    """Query the registry for schemas that were not known; return False when no unread message has a new prefix."""
    if decoding.registry is None:
        return False
    if len(decoding.learned.missing) >= MOST_MISSING:
        return False
    prefix = framing.prefix_of(f.col("_raw"), f.col("headers"), wire=decoding.registry.wire, kind=kind)
    known = {*decoding.learned.writers, *decoding.learned.missing}
    met = [one for one in _prefixes(unread, prefix) if one not in known]
    _fetch_schemas(met, unread.sparkSession, decoding, kind=kind, codec=codec)
    return bool(met)


def _prefixes(frame: DataFrame, prefix: Column) -> list[bytes]:
    """Return the prefixes of messages, the most frequent first: an accidental prefix occurs in few messages."""
    counted = frame.select(prefix.alias("it")).where("it IS NOT NULL").groupBy("it").count()
    most = counted.orderBy(f.desc("count"), "it").limit(_MOST_PREFIXES).collect()
    return [bytes(one["it"]) for one in most]


def _fetch_schemas(
    prefixes: Iterable[bytes], spark: SparkSession, decoding: DecodingState, *, kind: str, codec: CodecMaker
) -> None:
    """Fetch the schemas of these prefixes, and widen the columns by theirs."""
    registry = decoding.registry
    assert registry is not None  # noqa: S101 - checked by the callers
    for prefix in prefixes:
        if len(decoding.learned.missing) >= MOST_MISSING:
            break
        meaning = framing.parse_prefix(prefix, wire=registry.wire, kind=kind)
        try:
            schema = registry.schema(meaning.schema_id)
            if schema.kind != kind:
                raise UnusableSchema(f"it is a schema of {schema.kind}, and the stream's payload is {decoding.payload}")
            decoding.learned.writers[prefix] = _writer(
                codec(schema, meaning, registry.wire), meaning, schema.order, spark
            )
        except UnknownSchema as error:
            decoding.learned.missing[prefix] = (error.what, time.monotonic())
        except UnusableSchema as error:
            decoding.learned.missing[prefix] = (f"{meaning.label} cannot be used: {error}", time.monotonic())
    _widen(decoding)


def _writer(codec: PayloadCodec, meaning: framing.SchemaPrefix, order: int, spark: SparkSession) -> KnownWriter:
    kind = nullable_type(codec.row_type(spark))
    if isinstance(kind, t.StructType):
        return KnownWriter(meaning, codec, kind, order, True, codec.defaults(spark))
    return KnownWriter(meaning, codec, t.StructType([t.StructField("value", kind)]), order, False)


def _fetch_configured_schema(spark: SparkSession, decoding: DecodingState, *, kind: str, codec: CodecMaker) -> None:
    if decoding.learned.writers:
        return
    text = decoding.fields.get("schema")
    if text is None:
        raise DeclarationError(
            f"{decoding.payload} messages need a schema registry, or the schema they are written with",
            hint='give the connection a schema_registry, or fields={"schema": "…"}',
        )
    meaning = framing.SchemaPrefix(decoding.fields.get("message", ""))
    try:
        decoding.learned.writers[b""] = _writer(codec(RegisteredSchema(kind, text), meaning, PLAIN), meaning, 0, spark)
    except UnusableSchema as error:
        raise DeclarationError(f"the given {kind} schema cannot be used: {error}", hint="look at fields") from None
    _widen(decoding)


def _widen(decoding: DecodingState) -> None:
    newest_first = sorted(decoding.learned.writers.values(), key=lambda writer: -writer.order)
    wide = known_columns(decoding)
    for writer in newest_first:
        wide = writer.columns if wide is None else widen_structs(wide, writer.columns)
    if wide is not None:
        remember_columns(decoding, wide)


def _target(decoding: DecodingState) -> StructType:
    if decoding.fields and decoding.registry is not None:
        return declared_columns(decoding.fields)
    return known_columns(decoding) or t.StructType([])


def _opened_columns(plan: DataFrame, decoding: DecodingState) -> DataFrame:
    """Add one column for each writer, with its decoded rows."""
    columns = {}
    for number, (prefix, writer) in enumerate(decoding.learned.writers.items()):
        body = framing.body_of(f.when(f.col(_PREFIX) == f.lit(prefix), f.col("value")), prefix, writer.meaning)
        columns[_column(number)] = writer.codec.opened(body)
    return plan.withColumns(columns) if columns else plan


def _column(number: int) -> str:
    return f"_flow_opened_{number}"


def _row(decoding: DecodingState, target: StructType) -> Column:
    rows = [
        project_value(row, writer.columns, target, defaults=_newest_defaults(decoding))
        for row, writer in _rows(decoding)
        if target.fields
    ]
    return f.coalesce(*rows) if rows else f.lit(None).cast(target if target.fields else "string")


def _rows(decoding: DecodingState) -> list[tuple[Column, KnownWriter]]:
    """Return the row of each writer; NULL for messages of another one, or where the bytes do not follow its schema."""
    row_cases = []
    for number, writer in enumerate(decoding.learned.writers.values()):
        row = writer.codec.row(f.col(_column(number)))
        if not writer.is_record:
            row = f.when(row.isNotNull(), f.struct(row.alias("value")))
        row_cases.append((row, writer))
    return row_cases


def _newest_defaults(decoding: DecodingState) -> Mapping[Path, Default]:
    newest: KnownWriter = max(decoding.learned.writers.values(), key=lambda writer: writer.order)
    return newest.defaults


def _error_reason(decoding: DecodingState, target: StructType) -> Column:
    prefix, state = f.col(_PREFIX), decoding.learned
    why = f.when(f.col("value").isNull(), TOMBSTONE)
    why = why.when(prefix.isNull(), "the message does not begin with the id of its schema")
    for missing, (reason, _) in state.missing.items():
        why = why.when(prefix == f.lit(missing), mask(reason)[: 2 * _SHOWN])
    for (known, writer), (row, _) in zip(state.writers.items(), _rows(decoding), strict=True):
        of_this = prefix == f.lit(known)
        label = writer.meaning.label if decoding.registry is not None else "the given schema"
        why = why.when(of_this & row.isNull(), f"the bytes are not what {label} describes")
        if decoding.fields and decoding.registry is not None:
            why = why.when(
                of_this & _loses_value(row, writer.columns, target), "a value does not fit its declared column"
            )
        why = why.when(of_this, f.lit(None).cast("string"))
    if len(state.missing) >= MOST_MISSING:
        return why.otherwise(_NO_IDS)
    return why.otherwise(f"{NOT_LEARNED}the schema of the message is not known")


def _loses_value(row: Column, columns: StructType, target: StructType) -> Column:
    """Return whether a declared column is NULL although the message has a value for it."""
    kept = f.col(_ROW)
    wanted = {one.name for one in target.fields}
    lost = [
        row.getField(one.name).isNotNull() & kept.getField(one.name).isNull()
        for one in columns.fields
        if one.name in wanted
    ]
    return reduce(lambda one, other: one | other, lost, f.lit(False))


def type_of(spark: SparkSession, column: Column) -> Any:
    """Return the type that Spark derives for a column; raise Unusable with Spark's message where it refuses it."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        return spark.range(0).select(column.alias("it")).schema["it"].dataType
    except (PySparkException, Py4JError) as error:
        message = " ".join(str(error).split("\n")[:2])
        raise UnusableSchema(mask(message)[:_SHOWN]) from None
