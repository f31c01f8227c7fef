"""Declared types in Spark's and Arrow's words."""

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
"""How Spark writes JSON without losing anything: NULL fields stay, and instants keep their microseconds."""


def spark_type(column_type: ColumnType) -> str:
    """The type a dataframe carries a column in."""
    if isinstance(column_type, Numeric):
        return f"DECIMAL({column_type.precision},{column_type.scale})"
    return _SPARK[column_type.kind]


def spark_schema(columns: list[tuple[str, ColumnType]]) -> str:
    """A DDL schema string."""
    return ", ".join(f"`{name.replace('`', '``')}` {spark_type(column_type)}" for name, column_type in columns)


def arrow_type(column_type: ColumnType) -> pa.DataType:
    """The Arrow type that Spark gives and takes for it."""
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
    """The declared type that Spark finds in a Parquet column of this type; None when they may differ."""
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
    """An Arrow schema."""
    import pyarrow as pa

    return pa.schema([pa.field(name, arrow_type(column_type)) for name, column_type in columns])


def pairs(columns: tuple[Column, ...]) -> list[tuple[str, ColumnType]]:
    """Names and types."""
    return [(column.name, column.type) for column in columns]
