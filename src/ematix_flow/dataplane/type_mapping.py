"""Mapping of the declared types to Spark's and Arrow's types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ematix_flow.declare.types import (
    BigInt,
    Boolean,
    Bytes,
    Column,
    ColumnType,
    Date,
    Double,
    Float,
    Integer,
    Numeric,
    SmallInt,
    Text,
    Timestamp,
    TimestampTZ,
)

if TYPE_CHECKING:
    import pyarrow as pa

_SPARK = {
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
    return _SPARK[column_type.kind]


def spark_schema(columns: list[tuple[str, ColumnType]]) -> str:
    """Return the columns as a Spark DDL schema string."""
    return ", ".join(f"`{name.replace('`', '``')}` {spark_type(column_type)}" for name, column_type in columns)


def arrow_type(column_type: ColumnType) -> pa.DataType:
    """Return the Arrow type that Spark uses for a column of this type."""
    import pyarrow as pa

    if isinstance(column_type, Numeric):
        return pa.decimal128(column_type.precision, column_type.scale)
    types: dict[str, Any] = {
        "small_int": pa.int16(), "integer": pa.int32(), "big_int": pa.int64(), "float": pa.float32(),
        "double": pa.float64(), "boolean": pa.bool_(), "date": pa.date32(), "timestamp": pa.timestamp("us"),
        "timestamp_tz": pa.timestamp("us", "UTC"), "bytes": pa.binary(),
    }  # fmt: skip
    return types.get(column_type.kind, pa.string())


def column_type(stored: pa.DataType) -> ColumnType | None:
    """Return the declared type that Spark reads from a Parquet column of this type; None when they may differ."""
    import pyarrow as pa

    if pa.types.is_decimal128(stored):
        return Numeric(stored.precision, stored.scale)
    if pa.types.is_timestamp(stored) and stored.unit in ("us", "ms"):
        return Timestamp() if stored.tz is None else TimestampTZ()
    if pa.types.is_dictionary(stored):
        return column_type(stored.value_type)
    simple: dict[pa.DataType, ColumnType] = {
        pa.int16(): SmallInt(), pa.int32(): Integer(), pa.int64(): BigInt(), pa.float32(): Float(),
        pa.float64(): Double(), pa.bool_(): Boolean(), pa.date32(): Date(), pa.string(): Text(),
        pa.large_string(): Text(), pa.binary(): Bytes(), pa.large_binary(): Bytes(),
    }  # fmt: skip
    return simple.get(stored)


def arrow_schema(columns: list[tuple[str, ColumnType]]) -> pa.Schema:
    """Return the columns as an Arrow schema."""
    import pyarrow as pa

    return pa.schema([pa.field(name, arrow_type(column_type)) for name, column_type in columns])


def pairs(columns: tuple[Column, ...]) -> list[tuple[str, ColumnType]]:
    """Return the name and type of each column."""
    return [(column.name, column.type) for column in columns]
