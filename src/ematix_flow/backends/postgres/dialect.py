"""The SQL dialect of PostgreSQL."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta

from ematix_flow.dataplane.type_mapping import types_by_native
from ematix_flow.declare.types import Column, ColumnType, Numeric, String
from ematix_flow.families.sql.dialect import SqlDialect

_BYTES_A_KEY = 200
_MOST_BYTES = 256 * 1024 * 1024
_TYPES = {
    "small_int": "smallint", "integer": "integer", "big_int": "bigint", "float": "real", "double": "double precision",
    "boolean": "boolean", "text": "text", "date": "date", "timestamp": "timestamp", "timestamp_tz": "timestamptz",
    "json": "json", "jsonb": "jsonb", "uuid": "uuid", "bytes": "bytea",
}  # fmt: skip
_NATIVE = types_by_native(_TYPES, {
    "int2": "small_int", "int4": "integer", "int8": "big_int", "float4": "float", "float8": "double", "bool": "boolean",
    "varchar": "text", "character varying": "text", "bpchar": "text", "character": "text", "name": "text",
    "timestamp without time zone": "timestamp", "timestamp with time zone": "timestamp_tz",
})  # fmt: skip
_SIZED = re.compile(r"^([a-z ]+?)\s*\((\d+)(?:,\s*(-?\d+))?\)(.*)$")


class PostgresDialect(SqlDialect):
    """The dialect of PostgreSQL 12 and later."""

    name = "postgres"
    sorts_numbers_faster = True
    # Two sessions that run CREATE … IF NOT EXISTS at once both try; a unique index of the catalog rejects one of them.
    creation_lock = "SELECT pg_advisory_xact_lock(7310588012402763)"

    def type_sql(self, column: Column, *, key: bool = False) -> str:
        if isinstance(column.type, String):
            return f"varchar({column.type.length})"
        if isinstance(column.type, Numeric):
            return f"numeric({column.type.precision},{column.type.scale})"
        return _TYPES[column.type.kind]

    def parse_type(self, native: str) -> ColumnType | None:
        plain = native.lower().strip()
        sized = _SIZED.match(plain)
        if sized:
            base, first, second, rest = sized.groups()
            if base in ("varchar", "character varying"):
                return String(int(first))
            if base == "numeric":
                scale = int(second or 0)
                return Numeric(int(first), scale) if int(first) <= 38 and 0 <= scale <= int(first) else None
            plain = (base + rest).strip()
        return _NATIVE.get(plain)

    def sha256(self, text: str) -> str:
        return f"sha256(convert_to({text}, 'UTF8'))"

    def as_text(self, expression: str, column_type: ColumnType) -> str:
        if column_type.kind == "bytes":
            return f"encode({expression}, 'hex')"
        return f"({expression})::text"

    def instant(self, moment: datetime) -> str:
        return f"'{moment.isoformat()}'::timestamptz"

    def plus(self, instant: str, span: timedelta) -> str:
        return f"({instant} + interval '{span.total_seconds():.6f} seconds')"

    def to_instant(self, expression: str, column_type: ColumnType) -> str:
        return f"({expression})::timestamptz"

    def uuid(self, value: str) -> str:
        return f"'{value}'::uuid"

    def differs(self, left: str, right: str, column: Column) -> str:
        if column.type.kind == "json":  # the json type has no equality operator
            left, right = f"({left})::text", f"({right})::text"
        return f"{left} IS DISTINCT FROM {right}"

    def for_a_publish(self, rows: int) -> Sequence[str]:
        """Return statements that raise work_mem: with the default 4 MB, a million keys spill to disk several times."""
        wanted = min(rows * _BYTES_A_KEY, _MOST_BYTES)
        return (
            f"SELECT set_config('work_mem', GREATEST(pg_size_bytes(current_setting('work_mem')), {wanted}) / 1024 || 'kB', true)",
        )

    def row_address(self, relation: str) -> str:
        """Return a query for the row address column: tables and partitioned tables have ctid, views have none."""
        place = f"to_regclass({self.text_literal(relation)})"
        return f"SELECT CASE WHEN relkind IN ('r', 'p') THEN 'ctid' END FROM pg_class WHERE oid = {place}"

    def truncate(self, relation: str) -> str:
        return f"TRUNCATE TABLE {relation}"

    def create_temporary(self, name: str, query: str, *, looked_up_by: Sequence[Column] = ()) -> str:
        return f"CREATE TEMPORARY TABLE {self.quote(name)} ON COMMIT DROP AS {query}"

    def temporary(self, name: str) -> str:
        return f"pg_temp.{self.quote(name)}"

    def change_type(self, relation: str, column: Column) -> list[str] | None:
        wanted = self.type_sql(column)
        name = self.quote(column.name)
        return [f"ALTER TABLE {relation} ALTER COLUMN {name} TYPE {wanted} USING {name}::{wanted}"]

    def watermark_literal(self, value: str, column_type: ColumnType) -> str:
        if column_type.kind in ("small_int", "integer", "big_int", "float", "double", "numeric"):
            return value
        return f"{self.text_literal(value)}::{self.type_sql(Column(column_type))}"

    def watermark_text(self, expression: str, column_type: ColumnType) -> str:
        if column_type.kind == "timestamp_tz":
            return f"to_char(({expression}) AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US') || '+00:00'"
        if column_type.kind == "timestamp":
            return f"to_char({expression}, 'YYYY-MM-DD HH24:MI:SS.US')"
        return f"({expression})::text"
