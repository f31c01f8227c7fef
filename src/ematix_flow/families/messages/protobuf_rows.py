"""Protobuf messages as rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ematix_flow.families.messages import framing, protobuf_arrow, protobuf_files, written
from ematix_flow.families.messages.reading import Decoding, Reading
from ematix_flow.families.messages.registry import PROTOBUF, Schema
from ematix_flow.families.messages.tasks import on_arrow
from ematix_flow.families.messages.widening import Path

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

JARS: tuple[str, ...] = ()


def read(frame: DataFrame, how: Decoding) -> Reading:
    """Decode each message by the schema that its prefix refers to."""
    return written.read(frame, how, kind=PROTOBUF, codec=_Protobuf)


def learn(unread: DataFrame, how: Decoding) -> bool:
    """Fetch the schemas of unread messages; return False when there is no new one."""
    return written.learn(unread, how, kind=PROTOBUF, codec=_Protobuf)


class _Protobuf:
    def __init__(self, schema: Schema, meaning: framing.Prefix, wire: str) -> None:
        try:
            self._descriptors = protobuf_files.compiled(schema)
            named = str(meaning.schema_id) if wire == written.PLAIN and meaning.schema_id else None
            self._name = named or protobuf_files.message_name(self._descriptors, meaning.indexes, wire=wire)
            self._kind = protobuf_arrow.spark_type(
                protobuf_arrow.message_class(self._descriptors, self._name).DESCRIPTOR
            )
        except (protobuf_files.NotCompiled, KeyError, TypeError) as error:
            raise written.Unusable(str(error)) from None

    def row_type(self, spark: SparkSession) -> DataType:
        if self._kind is None:
            raise written.Unusable(f"the message {self._name} has no fields")
        return self._kind

    def opened(self, body: Column) -> Column:
        from pyspark.sql.pandas.types import to_arrow_type

        assert self._kind is not None  # noqa: S101 - checked by row_type before
        read = protobuf_arrow.reader(self._descriptors, self._name, to_arrow_type(self._kind))
        return on_arrow(read, self._kind)(body)

    def row(self, opened: Column) -> Column:
        return opened

    def defaults(self, spark: SparkSession) -> Mapping[Path, written.Default]:
        return {}

    def kinds(self) -> Mapping[str, str]:
        return {}
