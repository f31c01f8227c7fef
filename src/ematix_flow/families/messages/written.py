"""Messages that refer to their writer's schema: each is decoded by its own, to rows of one common shape."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any, Protocol

from ematix_flow.families.messages import framing
from ematix_flow.families.messages.reading import (
    FIRST_LOOK,
    KINDS,
    MOST_MISSING,
    NOT_LEARNED,
    TOMBSTONE,
    Decoding,
    Reading,
    columns_known,
    declared,
    forget_old_absences,
    remember,
)
from ematix_flow.families.messages.registry import Schema, UnknownSchema
from ematix_flow.families.messages.widening import Path, loose, projected, widen_structs
from ematix_flow.foundation.errors import DeclarationError
from ematix_flow.foundation.redact import mask

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


class Unusable(Exception):
    """The error of a schema that exists but cannot be used for decoding, with the reason."""


class Codec(Protocol):
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


CodecMaker = Callable[[Schema, framing.Prefix, str], Codec]
"""A factory of codecs from a schema, a message's prefix and the wire."""


@dataclass(frozen=True)
class Writer:
    """A schema that messages were written with, and its decoder."""

    meaning: framing.Prefix
    codec: Codec
    columns: StructType
    order: int
    is_record: bool
    defaults: Mapping[Path, Default] = field(default_factory=dict)


def read(frame: DataFrame, how: Decoding, *, kind: str, codec: CodecMaker) -> Reading:
    """Decode each message by its own schema; `why` marks those whose schema is not known yet."""
    from pyspark.sql import functions as f
    from pyspark.sql import types as t

    value = f.col("value")
    if how.registry is None:
        _know_the_given_schema(frame.sparkSession, how, kind=kind, codec=codec)
        prefix = f.when(value.isNotNull(), f.lit(b""))
    else:
        forget_old_absences(how)
        prefix = framing.prefix_of(value, f.col("headers"), wire=how.registry.wire, kind=kind)
        if not how.learned.writers:
            _meet(_prefixes(frame.limit(FIRST_LOOK), prefix), frame.sparkSession, how, kind=kind, codec=codec)
    target = _target(how)
    plan = _opened(frame.withColumn(_PREFIX, prefix), how)
    plan = plan.withColumn(_ROW, _row(how, target))
    row = f.col(_ROW)
    columns = tuple((one.name, row.getField(one.name)) for one in target.fields)
    types = list(target.fields)
    if how.of_connect:
        columns += ((KINDS, _kinds(how)),)
        types.append(t.StructField(KINDS, t.MapType(t.StringType(), t.StringType())))
    return Reading(plan, columns, t.StructType(types), _why(how, target))


def _kinds(how: Decoding) -> Column:
    """Return a column with the types that each message's schema has for the columns of a row."""
    from pyspark.sql import functions as f

    said = [
        f.when(f.col(_PREFIX) == f.lit(prefix), f.lit(json.dumps(writer.codec.kinds())))
        for prefix, writer in how.learned.writers.items()
    ]
    return f.from_json(f.coalesce(*said) if said else f.lit(None).cast("string"), "MAP<STRING, STRING>")


def learn(unread: DataFrame, how: Decoding, *, kind: str, codec: CodecMaker) -> bool:
    """Query the registry for schemas that were not known; return False when no unread message has a new prefix."""
    from pyspark.sql import functions as f

    if how.registry is None:
        return False
    if len(how.learned.missing) >= MOST_MISSING:
        return False
    prefix = framing.prefix_of(f.col("_raw"), f.col("headers"), wire=how.registry.wire, kind=kind)
    known = {*how.learned.writers, *how.learned.missing}
    met = [one for one in _prefixes(unread, prefix) if one not in known]
    _meet(met, unread.sparkSession, how, kind=kind, codec=codec)
    return bool(met)


def _prefixes(frame: DataFrame, prefix: Column) -> list[bytes]:
    """Return the prefixes of messages, the most frequent first: an accidental prefix occurs in few messages."""
    from pyspark.sql import functions as f

    counted = frame.select(prefix.alias("it")).where("it IS NOT NULL").groupBy("it").count()
    most = counted.orderBy(f.desc("count"), "it").limit(_MOST_PREFIXES).collect()
    return [bytes(one["it"]) for one in most]


def _meet(prefixes: Iterable[bytes], spark: SparkSession, how: Decoding, *, kind: str, codec: CodecMaker) -> None:
    """Fetch the schemas of these prefixes, and widen the columns by theirs."""
    registry = how.registry
    assert registry is not None  # noqa: S101 - checked by the callers
    for prefix in prefixes:
        if len(how.learned.missing) >= MOST_MISSING:
            break
        meaning = framing.meaning_of(prefix, wire=registry.wire, kind=kind)
        try:
            schema = registry.schema(meaning.schema_id)
            if schema.kind != kind:
                raise Unusable(f"it is a schema of {schema.kind}, and the stream's payload is {how.payload}")
            how.learned.writers[prefix] = _writer(codec(schema, meaning, registry.wire), meaning, schema.order, spark)
        except UnknownSchema as error:
            how.learned.missing[prefix] = (error.what, time.monotonic())
        except Unusable as error:
            how.learned.missing[prefix] = (f"{meaning.label} cannot be used: {error}", time.monotonic())
    _widen(how)


def _writer(codec: Codec, meaning: framing.Prefix, order: int, spark: SparkSession) -> Writer:
    from pyspark.sql import types as t

    kind = loose(codec.row_type(spark))
    if isinstance(kind, t.StructType):
        return Writer(meaning, codec, kind, order, True, codec.defaults(spark))
    return Writer(meaning, codec, t.StructType([t.StructField("value", kind)]), order, False)


def _know_the_given_schema(spark: SparkSession, how: Decoding, *, kind: str, codec: CodecMaker) -> None:
    if how.learned.writers:
        return
    text = how.fields.get("schema")
    if text is None:
        raise DeclarationError(
            f"{how.payload} messages need a schema registry, or the schema they are written with",
            hint='give the connection a schema_registry, or fields={"schema": "…"}',
        )
    meaning = framing.Prefix(how.fields.get("message", ""))
    try:
        how.learned.writers[b""] = _writer(codec(Schema(kind, text), meaning, PLAIN), meaning, 0, spark)
    except Unusable as error:
        raise DeclarationError(f"the given {kind} schema cannot be used: {error}", hint="look at fields") from None
    _widen(how)


def _widen(how: Decoding) -> None:
    newest_first = sorted(how.learned.writers.values(), key=lambda writer: -writer.order)
    wide = columns_known(how)
    for writer in newest_first:
        wide = writer.columns if wide is None else widen_structs(wide, writer.columns)
    if wide is not None:
        remember(how, wide)


def _target(how: Decoding) -> StructType:
    from pyspark.sql import types as t

    if how.fields and how.registry is not None:
        return declared(how.fields)
    return columns_known(how) or t.StructType([])


def _opened(plan: DataFrame, how: Decoding) -> DataFrame:
    """Add one column for each writer, with its decoded rows."""
    from pyspark.sql import functions as f

    made = {}
    for number, (prefix, writer) in enumerate(how.learned.writers.items()):
        body = framing.body_of(f.when(f.col(_PREFIX) == f.lit(prefix), f.col("value")), prefix, writer.meaning)
        made[_column(number)] = writer.codec.opened(body)
    return plan.withColumns(made) if made else plan


def _column(number: int) -> str:
    return f"_flow_opened_{number}"


def _row(how: Decoding, target: StructType) -> Column:
    from pyspark.sql import functions as f

    rows = [
        projected(row, writer.columns, target, defaults=_newest_defaults(how))
        for row, writer in _rows(how)
        if target.fields
    ]
    return f.coalesce(*rows) if rows else f.lit(None).cast(target if target.fields else "string")


def _rows(how: Decoding) -> list[tuple[Column, Writer]]:
    """Return the row of each writer; NULL for messages of another one, or where the bytes do not follow its schema."""
    from pyspark.sql import functions as f

    found = []
    for number, writer in enumerate(how.learned.writers.values()):
        row = writer.codec.row(f.col(_column(number)))
        if not writer.is_record:
            row = f.when(row.isNotNull(), f.struct(row.alias("value")))
        found.append((row, writer))
    return found


def _newest_defaults(how: Decoding) -> Mapping[Path, Default]:
    newest: Writer = max(how.learned.writers.values(), key=lambda writer: writer.order)
    return newest.defaults


def _why(how: Decoding, target: StructType) -> Column:
    from pyspark.sql import functions as f

    prefix, state = f.col(_PREFIX), how.learned
    why = f.when(f.col("value").isNull(), TOMBSTONE)
    why = why.when(prefix.isNull(), "the message does not begin with the id of its schema")
    for missing, (reason, _) in state.missing.items():
        why = why.when(prefix == f.lit(missing), mask(reason)[: 2 * _SHOWN])
    for (known, writer), (row, _) in zip(state.writers.items(), _rows(how), strict=True):
        of_this = prefix == f.lit(known)
        label = writer.meaning.label if how.registry is not None else "the given schema"
        why = why.when(of_this & row.isNull(), f"the bytes are not what {label} describes")
        if how.fields and how.registry is not None:
            why = why.when(of_this & _loses(row, writer.columns, target), "a value does not fit its declared column")
        why = why.when(of_this, f.lit(None).cast("string"))
    if len(state.missing) >= MOST_MISSING:
        return why.otherwise(_NO_IDS)
    return why.otherwise(f"{NOT_LEARNED}the schema of the message is not known")


def _loses(row: Column, columns: StructType, target: StructType) -> Column:
    """Return whether a declared column is NULL although the message has a value for it."""
    from pyspark.sql import functions as f

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
        said = " ".join(str(error).split("\n")[:2])
        raise Unusable(mask(said)[:_SHOWN]) from None
