"""Column types."""

from ematix_flow.declare.types import (
    JSON,
    JSONB,
    UUID,
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
    String,
    Text,
    Timestamp,
    TimestampTZ,
)

__all__ = [
    "JSON", "JSONB", "UUID", "BigInt", "Boolean", "Bytes", "Column", "ColumnType", "Date", "Double", "Float",
    "Integer", "Numeric", "SmallInt", "String", "Text", "Timestamp", "TimestampTZ",
]  # fmt: skip
