"""Columns of a query's result: their types from the protocol's metadata, and SQL that reads them exactly."""

from __future__ import annotations

from typing import Any

from ematix_flow.backends.mysql.dialect import MySqlDialect
from ematix_flow.contract.read import SourceColumn
from ematix_flow.declare.types import (
    PLAIN_BY_KIND,
    UUID,
    BigInt,
    Boolean,
    Bytes,
    ColumnType,
    Integer,
    Numeric,
    SmallInt,
    String,
    Text,
)
from ematix_flow.families.sql.session import SqlSession

_DIALECT = MySqlDialect()
_UNSIGNED = 0x20
_NOT_NULL = 0x01
_ENUM, _SET = 0x100, 0x800
_BINARY_CHARSET = 63
_BYTES_PER_CHARACTER = 4  # sessions use utf8mb4
_INTEGERS: dict[str, tuple[ColumnType, ColumnType]] = {  # signed, unsigned
    "tinyint": (SmallInt(), SmallInt()),
    "smallint": (SmallInt(), Integer()),
    "mediumint": (Integer(), Integer()),
    "int": (Integer(), BigInt()),
    "bigint": (BigInt(), Numeric(20, 0)),
}
_PLAIN = {
    "float": "float", "double": "double", "date": "date", "datetime": "timestamp", "timestamp": "timestamp_tz",
    "json": "jsonb", "year": "small_int",
}  # fmt: skip
_NAMES = {
    0: "decimal", 1: "tinyint", 2: "smallint", 3: "int", 4: "float", 5: "double", 6: "null", 7: "timestamp",
    8: "bigint", 9: "mediumint", 10: "date", 11: "time", 12: "datetime", 13: "year", 14: "date", 15: "varchar",
    16: "bit", 245: "json", 246: "decimal", 247: "enum", 248: "set", 249: "blob", 250: "blob", 251: "blob",
    252: "blob", 253: "varchar", 254: "char", 255: "geometry",
}  # fmt: skip


def describe_columns(session: SqlSession, query: str) -> tuple[SourceColumn, ...]:
    """Return the columns of a query's result."""
    with session._cursor(query) as cursor:
        return tuple(_column(field) for field in cursor._result.fields)  # `description` lacks sign and charset


def _column(field: Any) -> SourceColumn:
    native, column_type = _type_of(field)
    return SourceColumn(field.name, native, column_type, nullable=not field.flags & _NOT_NULL)


def _type_of(field: Any) -> tuple[str, ColumnType | None]:
    name = _NAMES.get(field.type_code, f"type {field.type_code}")
    unsigned = bool(field.flags & _UNSIGNED)
    if name == "tinyint" and field.length == 1:
        return "tinyint(1)", Boolean()
    if name in _INTEGERS:
        return f"{name} unsigned" if unsigned else name, _INTEGERS[name][unsigned]
    if name == "decimal":
        return _decimal(field, unsigned)
    if name == "bit":
        return f"bit({field.length})", _bit(field.length)
    if name in ("varchar", "char", "blob", "enum", "set"):
        return _text(field, name)
    return name, PLAIN_BY_KIND.get(_PLAIN.get(name, ""))


def _decimal(field: Any, unsigned: bool) -> tuple[str, ColumnType]:
    """Return the type, at most 38 digits: sums are declared with more, and a longer value fails when it is read."""
    precision = field.length - (0 if unsigned else 1) - (1 if field.scale else 0)
    return f"decimal({precision},{field.scale})", Numeric(min(precision, 38), min(field.scale, 38))


def _bit(length: int) -> ColumnType:
    if length == 1:
        return Boolean()
    return BigInt() if length < 64 else Numeric(20, 0)


def _text(field: Any, name: str) -> tuple[str, ColumnType]:
    if field.flags & (_ENUM | _SET):
        return "enum" if field.flags & _ENUM else "set", Text()
    if field.charsetnr == _BINARY_CHARSET:
        return {"varchar": "varbinary", "char": "binary"}.get(name, name), Bytes()
    if name == "blob":
        return "text", Text()
    length = field.length // _BYTES_PER_CHARACTER
    if name == "char" and length == 36:
        return "char(36)", UUID()
    return f"{name}({length})", String(length) if length else Text()


def expression(column: SourceColumn) -> str:
    """Return SQL that connectorx transports exactly: numbers, text and bytes unchanged, the rest as text."""
    name = _DIALECT.quote(column.name)
    if column.native.startswith("bit("):
        return f"CAST(CAST({name} AS UNSIGNED) AS CHAR)"
    if column.native == "geometry":
        return f"ST_AsText({name})"
    if column.native == "float":  # as text a FLOAT has six digits, a DOUBLE all of them
        return f"{name} * 1e0"
    exact = ("small_int", "integer", "big_int", "double", "boolean", "text", "string", "uuid", "bytes")
    if column.type is not None and column.type.kind in exact:
        return name
    return f"CAST({name} AS CHAR)"
