"""Protobuf messages as rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ematix_flow.dataplane.spark_tasks import on_arrow
from ematix_flow.messages import framing, protobuf_arrow, protobuf_schema, writer_schemas
from ematix_flow.messages.decoding_state import DecodedMessages, DecodingState
from ematix_flow.messages.registries.registry import PROTOBUF, RegisteredSchema
from ematix_flow.messages.type_widening import Path

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

JARS: tuple[str, ...] = ()


def read(frame: DataFrame, decoding: DecodingState) -> DecodedMessages:
    """Decode each message by the schema that its prefix refers to."""
    return writer_schemas.read_by_schema(frame, decoding, kind=PROTOBUF, codec=_Protobuf)


def learn(unread: DataFrame, decoding: DecodingState) -> bool:
    """Fetch the schemas of unread messages; return False when there is no new one."""
    return writer_schemas.learn_schemas(unread, decoding, kind=PROTOBUF, codec=_Protobuf)


class _Protobuf:
    def __init__(self, schema: RegisteredSchema, meaning: framing.SchemaPrefix, wire: str) -> None:
        try:
            self._descriptors = protobuf_schema.compile_schema(schema)
            named = str(meaning.schema_id) if wire == writer_schemas.PLAIN and meaning.schema_id else None
            self._name = named or protobuf_schema.message_name(self._descriptors, meaning.indexes, wire=wire)
            self._kind = protobuf_arrow.spark_type(
                protobuf_arrow.message_class(self._descriptors, self._name).DESCRIPTOR
            )
        except (protobuf_schema.NotCompiled, KeyError, TypeError) as error:
            raise writer_schemas.UnusableSchema(str(error)) from None

    def row_type(self, spark: SparkSession) -> DataType:
        if self._kind is None:
            raise writer_schemas.UnusableSchema(f"the message {self._name} has no fields")
        return self._kind

    def opened(self, body: Column) -> Column:
        from pyspark.sql.pandas.types import to_arrow_type

        assert self._kind is not None  # noqa: S101 - checked by row_type before
        read = protobuf_arrow.payload_reader(self._descriptors, self._name, to_arrow_type(self._kind))
        return on_arrow(read, self._kind)(body)

    def row(self, opened: Column) -> Column:
        return opened

    def defaults(self, spark: SparkSession) -> Mapping[Path, writer_schemas.Default]:
        return {}

    def kinds(self) -> Mapping[str, str]:
        return {}
