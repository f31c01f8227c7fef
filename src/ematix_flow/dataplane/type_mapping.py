"""Mapping of the declared types to Spark's and Arrow's types."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from ematix_flow.declare.types import PLAIN_BY_KIND, Column, ColumnType, Numeric, Timestamp, TimestampTZ
from ematix_flow.foundation.lazy_imports import pa

SPARK_TYPES = {
    "small_int": "SMALLINT", "integer": "INT", "big_int": "BIGINT", "float": "FLOAT", "double": "DOUBLE",
    "boolean": "BOOLEAN", "text": "STRING", "string": "STRING", "date": "DATE", "timestamp": "TIMESTAMP_NTZ",
    "timestamp_tz": "TIMESTAMP", "json": "STRING", "jsonb": "STRING", "uuid": "STRING", "bytes": "BINARY",
}  # fmt: skip

JSON_AS_IT_IS = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""Spark options for lossless JSON: NULL fields are written, and timestamps keep their microseconds."""


def spark_type(column_type: ColumnType) -> str:
    """Return the Spark type of a column."""
    if isinstance(column_type, Numeric):
        return f"DECIMAL({column_type.precision},{column_type.scale})"
    return SPARK_TYPES[column_type.kind]


def spark_schema(columns: list[tuple[str, ColumnType]]) -> str:
    """Return the columns as a Spark DDL schema string."""
    return ", ".join(f"`{name.replace('`', '``')}` {spark_type(column_type)}" for name, column_type in columns)


def arrow_type(column_type: ColumnType) -> pa.DataType:
    """Return the Arrow type that Spark uses for a column of this type."""
    if isinstance(column_type, Numeric):
        return pa.decimal128(column_type.precision, column_type.scale)
    return _arrow_types().get(column_type.kind, pa.string())


@cache
def _arrow_types() -> dict[str, pa.DataType]:
    return {
        "small_int": pa.int16(), "integer": pa.int32(), "big_int": pa.int64(), "float": pa.float32(),
        "double": pa.float64(), "boolean": pa.bool_(), "date": pa.date32(), "timestamp": pa.timestamp("us"),
        "timestamp_tz": pa.timestamp("us", "UTC"), "bytes": pa.binary(),
    }  # fmt: skip


def column_type(stored: pa.DataType) -> ColumnType | None:
    """Return the declared type that Spark reads from a Parquet column of this type; None when they may differ."""
    if pa.types.is_decimal128(stored):
        return Numeric(stored.precision, stored.scale)
    if pa.types.is_timestamp(stored) and stored.unit in ("us", "ms"):
        return Timestamp() if stored.tz is None else TimestampTZ()
    if pa.types.is_dictionary(stored):
        return column_type(stored.value_type)
    kinds = {arrow: kind for kind, arrow in _arrow_types().items()}
    kinds |= {pa.string(): "text", pa.large_string(): "text", pa.large_binary(): "bytes"}
    return PLAIN_BY_KIND.get(kinds.get(stored, ""))


def arrow_schema(columns: list[tuple[str, ColumnType]]) -> pa.Schema:
    """Return the columns as an Arrow schema."""
    return pa.schema([pa.field(name, arrow_type(column_type)) for name, column_type in columns])


def pairs(columns: tuple[Column, ...]) -> list[tuple[str, ColumnType]]:
    """Return the name and type of each column."""
    return [(column.name, column.type) for column in columns]


def types_by_native(natives: dict[str, str], aliases: Mapping[str, str] | None = None) -> dict[str, ColumnType]:
    """Return the declared type for each native name: `natives` maps kinds to names, `aliases` other names to kinds.

    Where several kinds are stored as one native type, the first counts.
    """
    kinds = {native: kind for kind, native in reversed(natives.items())} | dict(aliases or {})
    return {native: PLAIN_BY_KIND[kind] for native, kind in kinds.items() if kind in PLAIN_BY_KIND}
