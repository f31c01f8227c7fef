"""The SQL dialect of SQLite: no schemas, and five storage classes behind the declared type names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone

from ematix_flow.dataplane.type_mapping import types_by_native
from ematix_flow.declare.types import Column, ColumnType, Numeric, String, Text
from ematix_flow.families.sql.dialect import SqlDialect

# A type's name decides how SQLite converts values: JSON alone would turn the document 1.50 into the number 1.5,
# and INTEGER, REAL and FLOAT are eight bytes wide here, so the narrower types need names of their own.
_TYPES = {
    "small_int": "SMALLINT", "integer": "INT", "big_int": "BIGINT", "float": "FLOAT4", "double": "DOUBLE",
    "boolean": "BOOLEAN", "text": "TEXT", "date": "DATE", "timestamp": "TIMESTAMP", "timestamp_tz": "TIMESTAMPTZ",
    "json": "JSON TEXT", "jsonb": "JSONB TEXT", "uuid": "UUID", "bytes": "BLOB",
}  # fmt: skip
_NATIVE = types_by_native(_TYPES, {
    "INT2": "small_int", "TINYINT": "small_int", "INT4": "integer", "MEDIUMINT": "integer", "INTEGER": "big_int",
    "INT8": "big_int", "REAL": "double", "FLOAT": "double", "FLOAT8": "double", "DOUBLE PRECISION": "double",
    "BOOL": "boolean", "CLOB": "text", "VARCHAR": "text", "NVARCHAR": "text", "CHAR": "text", "CHARACTER": "text",
    "NCHAR": "text", "CHARACTER VARYING": "text", "DATETIME": "timestamp", "TIMESTAMP WITH TIME ZONE": "timestamp_tz",
    "JSON": "json", "JSONB": "jsonb", "BINARY": "bytes", "VARBINARY": "bytes", "BYTEA": "bytes",
})  # fmt: skip
_SIZED = re.compile(r"^([A-Z_ 0-9]+?)\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)$")
EXACT_DIGITS = 15
"""Decimal digits that are exact in a REAL; longer numbers are stored as text."""


class SqliteDialect(SqlDialect):
    """The dialect of SQLite 3.35 and later."""

    name = "sqlite"

    def type_sql(self, column: Column, *, key: bool = False) -> str:
        if isinstance(column.type, String):
            return f"VARCHAR({column.type.length})"
        if isinstance(column.type, Numeric):
            base = "NUMERIC" if column.type.precision <= EXACT_DIGITS else "DECIMAL_TEXT"
            return f"{base}({column.type.precision},{column.type.scale})"
        return _TYPES[column.type.kind]

    def parse_type(self, native: str) -> ColumnType | None:
        plain = " ".join(native.upper().split())
        sized = _SIZED.match(plain)
        if not sized:
            return _NATIVE.get(plain)
        base, first, second = sized.groups()
        if base in ("NUMERIC", "DECIMAL", "DECIMAL_TEXT", "DEC"):
            precision, scale = int(first), int(second or 0)
            whole = 38 if base == "DECIMAL_TEXT" else EXACT_DIGITS
            return Numeric(precision, scale) if 0 < precision <= whole and scale <= precision else None
        if isinstance(_NATIVE.get(base), Text) and int(first) > 0:
            return String(int(first))
        return _NATIVE.get(base)

    def relation(self, schema: str, table: str) -> str:
        return self.quote(self.table_name(schema, table))

    def table_name(self, schema: str, table: str) -> str:
        """Return the table's name with its schema as a prefix; `main` is SQLite's own name for no schema."""
        return table if schema.lower() in ("", "main") else f"{schema}_{table}"

    def create_schema(self, schema: str) -> str | None:
        return None

    def boolean(self, value: bool) -> str:
        return "1" if value else "0"

    def equal(self, left: str, right: str, column: Column) -> str:
        return f"{left} {'IS' if column.nullable else '='} {right}"

    def differs(self, left: str, right: str, column: Column) -> str:
        return f"{left} IS NOT {right}"

    def sha256(self, text: str) -> str:
        return f"flow_sha256({text})"

    def as_text(self, expression: str, column_type: ColumnType) -> str:
        kind = column_type.kind
        if kind == "bytes":
            return f"hex({expression})"
        if kind in ("float", "double"):  # a plain cast keeps 15 digits, so two different numbers could become equal
            return f"printf('%!.17g', {expression})"
        return f"CAST({expression} AS TEXT)"

    def instant(self, moment: datetime) -> str:
        utc = moment.astimezone(timezone.utc)
        return self.text_literal(utc.isoformat(sep=" ", timespec="microseconds"))

    def plus(self, instant: str, span: timedelta) -> str:
        """Return SQL that adds whole microseconds; SQLite's own modifiers support milliseconds at most."""
        micros = span // timedelta(microseconds=1)
        total = f"(CAST(strftime('%s', substr({instant}, 1, 19)) AS INTEGER) * 1000000 + substr({instant}, 21, 6) + {micros})"
        # Division rounds towards zero, and before 1970 the seconds are negative.
        seconds = f"(({total} - (({total} % 1000000) + 1000000) % 1000000) / 1000000)"
        fraction = f"((({total} % 1000000) + 1000000) % 1000000)"
        return f"(strftime('%Y-%m-%d %H:%M:%S', {seconds}, 'unixepoch') || printf('.%06d+00:00', {fraction}))"

    def to_instant(self, expression: str, column_type: ColumnType) -> str:
        if column_type.kind == "timestamp_tz":
            return expression
        return f"({expression} || '{' 00:00:00.000000' if column_type.kind == 'date' else ''}+00:00')"

    def temporary(self, name: str) -> str:
        return f"temp.{self.quote(name)}"

    def index_temporary(self, name: str, columns: Sequence[str]) -> str | None:
        return f"CREATE INDEX temp.{self.quote(f'{name}_looked_up')} ON {self.quote(name)} ({self.names(columns)})"

    def watermark_literal(self, value: str, column_type: ColumnType) -> str:
        if column_type.kind in ("small_int", "integer", "big_int", "float", "double"):
            return value
        if isinstance(column_type, Numeric) and column_type.precision <= EXACT_DIGITS:
            return value
        return self.text_literal(value)

    def watermark_text(self, expression: str, column_type: ColumnType) -> str:
        if isinstance(column_type, Numeric) and column_type.precision <= EXACT_DIGITS:
            return f"CASE WHEN {expression} IS NULL THEN NULL ELSE printf('%.{column_type.scale}f', {expression}) END"
        kind = column_type.kind
        if kind in ("float", "double"):
            return f"CASE WHEN {expression} IS NULL THEN NULL ELSE printf('%!.17g', {expression}) END"
        return f"CAST({expression} AS TEXT)"

    def change_type(self, relation: str, column: Column) -> list[str] | None:
        return None

    def drop_not_null(self, relation: str, column: str, native: str) -> list[str] | None:
        return None
