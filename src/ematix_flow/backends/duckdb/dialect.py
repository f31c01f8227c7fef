"""The SQL dialect of DuckDB."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

from ematix_flow.dataplane.type_mapping import types_by_native
from ematix_flow.declare.types import Column, ColumnType, Numeric
from ematix_flow.families.sql.dialect import SqlDialect

# DuckDB stores no length of a text and has one JSON type, so neither is written into the DDL.
_TYPES = {
    "small_int": "SMALLINT", "integer": "INTEGER", "big_int": "BIGINT", "float": "FLOAT", "double": "DOUBLE",
    "boolean": "BOOLEAN", "text": "VARCHAR", "string": "VARCHAR", "date": "DATE", "timestamp": "TIMESTAMP",
    "timestamp_tz": "TIMESTAMP WITH TIME ZONE", "json": "JSON", "jsonb": "JSON", "uuid": "UUID", "bytes": "BLOB",
}  # fmt: skip
_NATIVE = types_by_native(_TYPES)
_DECIMAL = re.compile(r"^DECIMAL\((\d+),\s*(\d+)\)$")


class DuckdbDialect(SqlDialect):
    """The dialect of DuckDB 1.2 and later; `catalog` is DuckDB's name for the database file."""

    name = "duckdb"

    def __init__(self, catalog: str = "") -> None:
        self._catalog = catalog

    def type_sql(self, column: Column, *, key: bool = False) -> str:
        if isinstance(column.type, Numeric):
            return f"DECIMAL({column.type.precision},{column.type.scale})"
        return _TYPES[column.type.kind]

    def parse_type(self, native: str) -> ColumnType | None:
        match = _DECIMAL.match(native)
        return Numeric(int(match[1]), int(match[2])) if match else _NATIVE.get(native)

    def relation(self, schema: str, table: str) -> str:
        return f"{self._schema(schema)}.{self.quote(table)}" if schema else self.quote(table)

    def create_schema(self, schema: str) -> str | None:
        return f"CREATE SCHEMA IF NOT EXISTS {self._schema(schema)}" if schema not in ("", "main") else None

    def _schema(self, schema: str) -> str:
        # In analytics.duckdb, analytics.events could mean the schema or the catalog, and DuckDB raises an error.
        is_ambiguous = schema.lower() == self._catalog.lower()
        return f"{self.quote(self._catalog)}.{self.quote(schema)}" if is_ambiguous else self.quote(schema)

    def sha256(self, text: str) -> str:
        return f"unhex(sha256({text}))"

    def as_text(self, expression: str, column_type: ColumnType) -> str:
        if column_type.kind == "bytes":
            return f"hex({expression})"
        return f"CAST({expression} AS VARCHAR)"

    def instant(self, moment: datetime) -> str:
        utc = moment.astimezone(timezone.utc)
        return f"TIMESTAMPTZ '{utc.isoformat(sep=' ', timespec='microseconds')}'"

    def plus(self, instant: str, span: timedelta) -> str:
        return f"({instant} + to_microseconds({span // timedelta(microseconds=1)}))"

    def to_instant(self, expression: str, column_type: ColumnType) -> str:
        if column_type.kind == "timestamp_tz":
            return expression
        return f"timezone('UTC', CAST({expression} AS TIMESTAMP))"

    def uuid(self, value: str) -> str:
        return f"CAST({self.text_literal(value)} AS UUID)"

    def temporary(self, name: str) -> str:
        return f"temp.{self.quote(name)}"

    def watermark_literal(self, value: str, column_type: ColumnType) -> str:
        if column_type.kind in ("small_int", "integer", "big_int", "float", "double", "numeric"):
            return value
        return f"CAST({self.text_literal(value)} AS {self.type_sql(Column(column_type))})"

    def watermark_text(self, expression: str, column_type: ColumnType) -> str:
        if column_type.kind == "timestamp_tz":
            return f"strftime(timezone('UTC', {expression}), '%Y-%m-%d %H:%M:%S.%f') || '+00:00'"
        if column_type.kind == "timestamp":
            return f"strftime({expression}, '%Y-%m-%d %H:%M:%S.%f')"
        return f"CAST({expression} AS VARCHAR)"
