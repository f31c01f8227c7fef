"""The SQL of the database, as far as it differs from that of the family."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

from ematix_flow.declare import types
from ematix_flow.families.sql.dialect import SqlDialect

_NAMES = {
    "small_int": "SMALLINT", "integer": "INTEGER", "big_int": "BIGINT", "float": "FLOAT", "double": "DOUBLE",
    "boolean": "BOOLEAN", "text": "VARCHAR", "string": "VARCHAR", "date": "DATE", "timestamp": "TIMESTAMP",
    "timestamp_tz": "TIMESTAMP WITH TIME ZONE", "json": "JSON", "jsonb": "JSON", "uuid": "UUID", "bytes": "BLOB",
}  # fmt: skip
_TYPES: dict[str, types.ColumnType] = {
    _NAMES[kind().kind]: kind()
    for kind in (
        types.SmallInt, types.Integer, types.BigInt, types.Float, types.Double, types.Boolean, types.Text, types.Date,
        types.Timestamp, types.TimestampTZ, types.JSON, types.UUID, types.Bytes,
    )
}  # fmt: skip
_NUMBERS = ("small_int", "integer", "big_int", "float", "double", "numeric")


class OutsideDialect(SqlDialect):
    """SQL with schemas, exact decimals and zoned timestamps."""

    name = "duckdb"

    def type_sql(self, column: types.Column, *, key: bool = False) -> str:
        kind = column.type
        return f"DECIMAL({kind.precision},{kind.scale})" if isinstance(kind, types.Numeric) else _NAMES[kind.kind]

    def parse_type(self, native: str) -> types.ColumnType | None:
        decimal = re.fullmatch(r"DECIMAL\((\d+),\s*(\d+)\)", native)
        return types.Numeric(int(decimal[1]), int(decimal[2])) if decimal else _TYPES.get(native)

    def create_schema(self, schema: str) -> str | None:
        return super().create_schema(schema) if schema not in ("", "main") else None

    def sha256(self, text: str) -> str:
        return f"unhex(sha256({text}))"

    def as_text(self, expression: str, column_type: types.ColumnType) -> str:
        return f"hex({expression})" if column_type.kind == "bytes" else f"CAST({expression} AS VARCHAR)"

    def instant(self, moment: datetime) -> str:
        return f"TIMESTAMPTZ '{moment.astimezone(timezone.utc).isoformat(sep=' ', timespec='microseconds')}'"

    def plus(self, instant: str, span: timedelta) -> str:
        return f"({instant} + to_microseconds({span // timedelta(microseconds=1)}))"

    def to_instant(self, expression: str, column_type: types.ColumnType) -> str:
        is_one = column_type.kind == "timestamp_tz"
        return expression if is_one else f"timezone('UTC', CAST({expression} AS TIMESTAMP))"

    def uuid(self, value: str) -> str:
        return f"CAST({self.text_literal(value)} AS UUID)"

    def temporary(self, name: str) -> str:
        return f"temp.{self.quote(name)}"

    def watermark_literal(self, value: str, column_type: types.ColumnType) -> str:
        if column_type.kind in _NUMBERS:
            return value
        return f"CAST({self.text_literal(value)} AS {self.type_sql(types.Column(column_type))})"

    def watermark_text(self, expression: str, column_type: types.ColumnType) -> str:
        if column_type.kind not in ("timestamp", "timestamp_tz"):
            return f"CAST({expression} AS VARCHAR)"
        zone = column_type.kind == "timestamp_tz"
        local = f"timezone('UTC', {expression})" if zone else expression
        return f"strftime({local}, '%Y-%m-%d %H:%M:%S.%f'){' || ' + repr('+00:00') if zone else ''}"
