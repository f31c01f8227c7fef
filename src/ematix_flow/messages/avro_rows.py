"""Avro messages as rows, through Spark's own reader."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ematix_flow.foundation.errors import RunFailed
from ematix_flow.foundation.lazy_imports import f, t
from ematix_flow.messages import avro_connect, avro_schema, framing, writer_schemas
from ematix_flow.messages.decoding_state import DecodedMessages, DecodingState
from ematix_flow.messages.registries.registry import AVRO, RegisteredSchema
from ematix_flow.messages.type_widening import Path, same_shape

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

_OPTIONS = {"mode": "PERMISSIVE", "recursiveFieldMaxDepth": "5", "datetimeRebaseMode": "CORRECTED"}


def read(frame: DataFrame, decoding: DecodingState) -> DecodedMessages:
    """Decode each message by the schema that its prefix refers to."""
    return writer_schemas.read_by_schema(
        frame, decoding, kind=AVRO, codec=_ConnectAvro if decoding.of_connect else _Avro
    )


def learn(unread: DataFrame, decoding: DecodingState) -> bool:
    """Fetch the schemas of unread messages; return False when there is no new one."""
    return writer_schemas.learn_schemas(
        unread, decoding, kind=AVRO, codec=_ConnectAvro if decoding.of_connect else _Avro
    )


class _Avro:
    def __init__(self, schema: RegisteredSchema, meaning: framing.SchemaPrefix, wire: str) -> None:
        try:
            self._whole, self._known = avro_schema.complete_schema(schema)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise writer_schemas.UnusableSchema(f"it is no Avro schema ({type(error).__name__})") from None
        self._framed = avro_schema.framed_schema(self._whole)

    def row_type(self, spark: SparkSession) -> DataType:
        frame: Any = writer_schemas.type_of(spark, self.opened(f.lit(b"")))
        kind: DataType = frame[avro_schema.ROW].dataType
        return kind

    def opened(self, body: Column) -> Column:
        return from_avro(f.concat(body, f.lit(avro_schema.FRAME_END)), self._framed, _OPTIONS)

    def row(self, opened: Column) -> Column:
        is_whole = opened.getField(avro_schema.END) == f.lit(avro_schema.FRAME_END)
        return f.when(is_whole, opened.getField(avro_schema.ROW))

    def defaults(self, spark: SparkSession) -> Mapping[Path, writer_schemas.Default]:
        return {path: _default(spark, path, text) for path, text in avro_schema.defaults(self._whole, self._known)}

    def kinds(self) -> Mapping[str, str]:
        return {}


class _ConnectAvro(_Avro):
    """A codec that reads Connect's Avro as its JSON converter writes it: logical types stay bytes, days and numbers."""

    def __init__(self, schema: RegisteredSchema, meaning: framing.SchemaPrefix, wire: str) -> None:
        super().__init__(schema, meaning, wire)
        self._whole = avro_connect.without_logical_types(self._whole)
        self._framed = avro_schema.framed_schema(self._whole)

    def kinds(self) -> Mapping[str, str]:
        return avro_connect.connect_kinds(self._whole, self._known)


def _default(spark: SparkSession, path: Path, text: str) -> writer_schemas.Default:
    """Return a function that makes a default: Avro itself resolves it by reading an empty record with `text`."""

    def made(wanted: DataType) -> Column | None:
        options = {**_OPTIONS, "avroSchema": text}
        value = from_avro(f.lit(b""), json.dumps(avro_schema.NOTHING), options).getField(path[-1])
        try:
            kind = writer_schemas.type_of(spark, value)
        except writer_schemas.UnusableSchema:
            return None
        return value if same_shape(kind, wanted) else _cast_default(value, kind, wanted)

    return made


def _cast_default(value: Column, kind: DataType, wanted: DataType) -> Column | None:
    nested = (t.StructType, t.ArrayType, t.MapType)
    return None if isinstance(kind, nested) or isinstance(wanted, nested) else value.try_cast(wanted)


def from_avro(data: Column, schema: str, options: dict[str, str]) -> Column:
    """Return Spark's `from_avro` column; raise RunFailed where the session lacks its jar."""
    from pyspark.sql.avro import functions as avro

    return _with_jar(lambda: avro.from_avro(data, schema, options))


def to_avro(data: Column, schema: str) -> Column:
    """Return Spark's `to_avro` column; raise RunFailed where the session lacks its jar."""
    from pyspark.sql.avro import functions as avro

    return _with_jar(lambda: avro.to_avro(data, schema))


def _with_jar(make: Callable[[], Column]) -> Column:
    try:
        return make()
    except TypeError as error:
        raise RunFailed(
            "this Spark session cannot read Avro",
            hint='start it with ematix_flow.spark_session(["avro"]), or with the jar org.apache.spark:spark-avro_2.13',
        ) from error
