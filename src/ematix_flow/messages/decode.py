"""Messages as rows: the payload's columns, the event time, the source position, and the decoding error.

A field or schema id that is not known yet is found row by row: such rows have an `_error` that begins with NOT_LEARNED.
Without a `watch`, `decode` looks for them itself, which reads the messages once more. With one, it reads nothing now:
the pass that writes the rows counts them, and the caller checks the count before it publishes anything:

    watch = Observation()
    rows = decode(messages, how, watch=watch)
    …stage the rows…                       # the first action over them
    if watch.get["unlearned"] and learn(rows, how):
        …drop the stage, and start again with decode(messages, how, watch=Observation())
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ematix_flow.contract.stream import ENVELOPE
from ematix_flow.foundation.errors import DeclarationError
from ematix_flow.foundation.lazy_imports import f, t
from ematix_flow.foundation.names import did_you_mean
from ematix_flow.messages import avro_rows, json_rows, protobuf_rows
from ematix_flow.messages.decoding_state import (
    EMPTY,
    NOT_LEARNED,
    TOMBSTONE,
    DecodedMessages,
    DecodingState,
    ForgetfulMemory,
    SchemaMemory,
)
from ematix_flow.messages.json_schema_inference import instant
from ematix_flow.messages.type_widening import distinct_names, quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Observation
    from pyspark.sql.types import DataType

__all__ = [
    "EMPTY", "ERROR", "EVENT_TS", "JARS", "MOST_LESSONS", "NOT_LEARNED", "RAW", "SOURCE", "TOMBSTONE", "DecodingState", "ForgetfulMemory",
    "SchemaMemory", "decode", "learn", "parse_moment",
]  # fmt: skip

EVENT_TS, SOURCE, RAW, ERROR = "_event_ts", "_source", "_raw", "_error"
JARS = {"avro": ("avro",), "protobuf": protobuf_rows.JARS}
"""The jar sets that a payload needs; the others need none."""
_OF_SOURCE = ("topic", "partition", "offset", "key", "headers", "message_id", "timestamp")
_PAYLOADS: dict[str, Any] = {"json": json_rows, "avro": avro_rows, "protobuf": protobuf_rows}
_MOMENT = "_flow_moment"
MOST_LESSONS = 5
"""The most inference passes over a batch; a second one is needed only where types meet that only text can hold."""
# Milliseconds of the years 1 to 9999: beyond them Spark would fail the batch because of one message.
_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999


def decode(frame: DataFrame, decoding: DecodingState, *, watch: Observation | None = None) -> DataFrame:
    """Return a batch of envelopes as rows; a row that cannot be decoded has NULL columns and the reason in `_error`.

    The first action over the rows fills `watch` with `rows`, `bad` and, among those, `unlearned`.
    """
    rows = _rows(frame, decoding, watch)
    for _ in range(MOST_LESSONS if watch is None else 0):
        if not learn(rows, decoding):
            break
        rows = _rows(frame, decoding, None)
    return rows


def learn(decoded: DataFrame, decoding: DecodingState) -> bool:
    """Learn from the rows with unknown fields or schemas; return True when the messages must be decoded again."""
    if decoding.payload not in _PAYLOADS or (decoding.payload == "json" and decoding.fields):
        return False
    unread = decoded.where(f.col(ERROR).startswith(NOT_LEARNED)).selectExpr(RAW, f"{SOURCE}.headers AS headers")
    return bool(_PAYLOADS[decoding.payload].learn(unread, decoding))


@dataclass(frozen=True)
class _DecodedColumns:
    """The expressions of a micro-batch: the columns read, the counts observed, and the output columns."""

    read: tuple[Column, ...]
    counts: tuple[Column, ...]
    kept: tuple[Column, ...]


def _rows(frame: DataFrame, decoding: DecodingState, watch: Observation | None) -> DataFrame:
    """Return the rows: one projection reads the payloads, the next one empties the bad rows.

    Spark evaluates an expression once in a projection, however often it occurs there; a further projection would build
    each row once more. The `observe` between them also keeps Spark from reading every payload twice: it would otherwise
    push a filter on `_error` below the reading, which would then be evaluated there once more.
    """
    reading = _read_payloads(frame.select(*(name for name, _ in ENVELOPE)), decoding)
    known, key = decoding.learned.expressions, ("rows", reading.key)
    columns: _DecodedColumns = known[key] if reading.key is not None and key in known else _decoded_columns(reading)
    if reading.key is not None:
        known[key] = columns
    observation = watch if watch is not None else f"flow_decode_{uuid.uuid4().hex}"
    return reading.frame.select(*columns.read).observe(observation, *columns.counts).select(*columns.kept)


def _decoded_columns(reading: DecodedMessages) -> _DecodedColumns:
    own = {name: column for name, column in reading.columns if name == EVENT_TS}
    moment = {_MOMENT: parse_moment(own[EVENT_TS], reading.types[EVENT_TS].dataType)} if own else {}
    unreadable = "the message's _event_ts is no point in time"
    why = [reading.why, *(f.when(own[EVENT_TS].isNotNull() & moment[_MOMENT].isNull(), unreadable) for _ in own)]
    named = [(name, column) for name, column in reading.columns if name != EVENT_TS]
    names = distinct_names([name for name, _ in named], (EVENT_TS, SOURCE, RAW, ERROR, _MOMENT))
    read = (
        *(column.alias(name) for name, (_, column) in zip(names, named, strict=True)),
        *(column.alias(name) for name, column in moment.items()),
        f.col("timestamp").alias(EVENT_TS),
        f.struct(*_OF_SOURCE).alias(SOURCE),
        f.col("value").alias(RAW),
        f.coalesce(*why).alias(ERROR),
    )
    is_good = f.col(ERROR).isNull()
    kept = (
        *(f.when(is_good, f.col(quoted(name))).alias(name) for name in names),
        f.coalesce(*(f.when(is_good, f.col(name)) for name in moment), f.col(EVENT_TS)).alias(EVENT_TS),
        *map(f.col, (SOURCE, RAW, ERROR)),
    )
    return _DecodedColumns(read, _counts(), kept)


def _read_payloads(frame: DataFrame, decoding: DecodingState) -> DecodedMessages:
    if decoding.payload == "raw_bytes":
        return _raw_bytes(frame)
    if decoding.payload not in _PAYLOADS:
        valid = ("raw_bytes", *_PAYLOADS)
        raise DeclarationError(f"there is no payload {decoding.payload!r}", hint=did_you_mean(decoding.payload, valid))
    reading: DecodedMessages = _PAYLOADS[decoding.payload].read(frame, decoding)
    return reading


def _raw_bytes(frame: DataFrame) -> DecodedMessages:
    types = t.StructType([t.StructField("payload", t.BinaryType())])
    return DecodedMessages(frame, (("payload", f.col("value")),), types, f.lit(None).cast("string"))


def _counts() -> tuple[Column, ...]:
    why = f.col(ERROR)
    return (
        f.count(f.lit(1)).alias("rows"),
        f.count(why).alias("bad"),
        f.count(f.when(why.startswith(NOT_LEARNED), 1)).alias("unlearned"),
    )


def source_struct(*, topic: str, offset: str, message_id: str, timestamp: str) -> str:
    """Return SQL of the column `_source` for rows that come from no broker."""
    parts = {
        "topic": topic, "partition": "CAST(NULL AS INT)", "offset": offset, "key": "CAST(NULL AS BINARY)",
        "headers": "CAST(NULL AS ARRAY<STRUCT<key: STRING, value: BINARY>>)", "message_id": message_id,
        "timestamp": timestamp,
    }  # fmt: skip
    return f"named_struct({', '.join(f'{part!r}, {value}' for part, value in parts.items())}) AS {SOURCE}"


def parse_moment(column: Column, kind: DataType) -> Column:
    """Return the time in a timestamp, an ISO 8601 text, or milliseconds since 1970; NULL for other types."""
    if isinstance(kind, (t.TimestampType, t.TimestampNTZType, t.DateType)):
        return column.cast("timestamp")
    if isinstance(kind, t.StringType):
        return instant(column)
    if isinstance(kind, t.IntegralType):
        return f.when(column.between(_FIRST_MS, _LAST_MS), f.timestamp_millis(column))
    return f.lit(None).cast("timestamp")
