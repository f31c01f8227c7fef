"""SQL of MySQL 8 and MariaDB; only MariaDB executes `/*M! … */`, only MySQL `/*!80000 … */`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from functools import cached_property

from ematix_flow.dataplane.type_mapping import types_by_native
from ematix_flow.declare.types import Bytes, Column, ColumnType, Numeric, String, Text
from ematix_flow.families.sql.dialect import SqlDialect

LONGEST_VARCHAR = 16383  # 65535 bytes of utf8mb4
KEY_LENGTH = 255
_TYPES = {
    "small_int": "smallint", "integer": "int", "big_int": "bigint", "float": "float", "double": "double",
    "boolean": "tinyint(1)", "text": "longtext", "date": "date", "timestamp": "datetime(6)",
    "timestamp_tz": "datetime(6)",  # a TIMESTAMP ends in 2038
    "json": "longtext",  # the JSON type reorders keys and rounds numbers: it keeps only a document's meaning
    "jsonb": "json", "uuid": "char(36) CHARACTER SET ascii COLLATE ascii_bin", "bytes": "longblob",
}  # fmt: skip
_NATIVE = types_by_native(_TYPES, {
    "tinytext": "text", "text": "text", "mediumtext": "text", "timestamp(6)": "timestamp_tz", "char(36)": "uuid",
    "uuid": "uuid", "tinyblob": "bytes", "blob": "bytes", "mediumblob": "bytes",
})  # fmt: skip
_SHAPE = re.compile(r"^([a-z]+)(?:\((\d+)(?:,(\d+))?\))?( unsigned)?")
_WIDTHS_OF_NO_MEANING = ("smallint", "int", "bigint")
_TEXTS = ("text", "string", "json")
_INDEXED_CHARACTERS = 100
_INDEXED_BYTES = 32
_NUMBERS = ("small_int", "integer", "big_int", "float", "double", "numeric")


def _portable_collation() -> str:
    return "utf8mb4_bin"


class MySqlDialect(SqlDialect):
    """The dialect of MySQL 8.0 and MariaDB 10.7, and later."""

    name = "mysql"
    changes_roll_back = False
    current_schema = "DATABASE()"

    def __init__(self, collation: Callable[[], str] = _portable_collation) -> None:
        self._ask_collation = collation

    @cached_property
    def collation(self) -> str:
        """Return the collation of new tables: the server's closest one to comparing bytes."""
        return self._ask_collation()

    def quote(self, identifier: str) -> str:
        return "`" + identifier.replace("`", "``") + "`"

    def text_literal(self, value: str) -> str:
        return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"

    def type_sql(self, column: Column, *, key: bool = False) -> str:
        match column.type:
            case Numeric(precision=precision, scale=scale):
                return f"decimal({precision},{scale})"
            case String(length=length):
                return f"varchar({length})" if length <= LONGEST_VARCHAR else "longtext"
            case Text() if key:
                return f"varchar({KEY_LENGTH})"
            case Bytes() if key:
                return f"varbinary({KEY_LENGTH})"
        return _TYPES[column.type.kind]

    def parse_type(self, native: str) -> ColumnType | None:
        """Return the type for a native one that keeps every value exactly: not unsigned, not CHAR, not DATETIME(0)."""
        match = _SHAPE.match(native.lower().strip())
        if match is None:
            return None
        base, first, second, unsigned = match.groups()
        if unsigned:
            return None
        if base == "varchar":
            return String(int(first))
        if base == "varbinary":
            return Bytes()
        if base == "decimal":
            return Numeric(int(first), int(second or 0)) if int(first) <= 38 else None
        if first is None or base in _WIDTHS_OF_NO_MEANING:
            return _NATIVE.get(base)
        return _NATIVE.get(f"{base}({first})") if second is None else None

    def table_suffix(self) -> str:
        return f" ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {self.collation}"

    def concat(self, parts: Sequence[str]) -> str:
        return f"CONCAT({', '.join(parts)})"

    def length(self, expression: str) -> str:
        return f"CHAR_LENGTH({expression})"

    def sha256(self, text: str) -> str:
        return f"UNHEX(SHA2({text}, 256))"

    def as_text(self, expression: str, column_type: ColumnType) -> str:
        kind = column_type.kind
        if kind in _TEXTS:
            return f"CONVERT({expression} USING utf8mb4) COLLATE utf8mb4_bin"
        if kind == "jsonb":
            by_meaning = f"/*M! JSON_NORMALIZE( */ /*!80000 CAST( */ {expression} /*M! ) */ /*!80000 AS JSON) */"
            return f"CONVERT({by_meaning} USING utf8mb4) COLLATE utf8mb4_bin"
        if kind == "bytes":
            return f"HEX({expression})"
        if kind == "float":  # as text a FLOAT has six digits, a DOUBLE all of them
            return f"CAST({expression} * 1e0 AS CHAR)"
        return f"CAST({expression} AS CHAR)"

    def equal(self, left: str, right: str, column: Column) -> str:
        sign = "<=>" if column.nullable else "="
        test = f"{left} {sign} {right}"
        if column.type.kind in _TEXTS:  # the plain test uses the index, the test of the bytes decides
            return f"({test} AND {self._bytes(left, column.type)} {sign} {self._bytes(right, column.type)})"
        return test

    def differs(self, left: str, right: str, column: Column) -> str:
        if column.type.kind in (*_TEXTS, "jsonb"):
            left, right = self._bytes(left, column.type), self._bytes(right, column.type)
        return f"NOT ({left} <=> {right})"

    def either(self, condition: str, one: str, other: str, column: Column) -> str:
        if column.type.kind in (*_TEXTS, "jsonb", "uuid"):  # two columns may have two collations, which cannot be mixed
            one, other = (f"CONVERT({value} USING utf8mb4) COLLATE utf8mb4_bin" for value in (one, other))
        return super().either(condition, one, other, column)

    def _bytes(self, expression: str, column_type: ColumnType) -> str:
        """Return SQL of a text as bytes, which no collation treats as equal and which keep trailing blanks."""
        return f"CAST({self.as_text(expression, column_type)} AS BINARY)"

    def instant(self, moment: datetime) -> str:
        utc = moment.astimezone(timezone.utc).replace(tzinfo=None)
        return f"TIMESTAMP'{utc.isoformat(sep=' ', timespec='microseconds')}'"

    def plus(self, instant: str, span: timedelta) -> str:
        return f"({instant} + INTERVAL {span // timedelta(microseconds=1)} MICROSECOND)"

    def to_instant(self, expression: str, column_type: ColumnType) -> str:
        return f"CAST({expression} AS DATETIME(6))"

    def update_from(self, relation: str, stage: str, *, on: str, sets: Mapping[str, str], where: str | None) -> str:
        assignments = ", ".join(f"{relation}.{self.quote(name)} = {value}" for name, value in sets.items())
        condition = f" WHERE {where}" if where else ""
        return f"UPDATE {relation} JOIN {stage} AS s ON {on} SET {assignments}{condition}"

    def delete_from(self, relation: str, stage: str, *, on: str, where: str) -> str:
        return f"DELETE {relation} FROM {relation} JOIN {stage} AS s ON {on} WHERE {where}"

    def temporary(self, name: str) -> str:
        return self.relation(self.meta_schema, name)  # a connection may have no current database

    def create_temporary(self, name: str, query: str, *, looked_up_by: Sequence[Column] = ()) -> str:
        # Adding an index later would commit the transaction.
        index = f" ({', '.join(self.lookup_lines(looked_up_by))})" if looked_up_by else ""
        return f"CREATE TEMPORARY TABLE {self.temporary(name)}{index} AS {query}"

    def lookup_lines(self, columns: Sequence[Column]) -> list[str]:
        """Return the table's index for joins: before 8.0.18, a join without one is a nested loop over all rows."""
        return [f"INDEX ({', '.join(map(self.index_part, columns))})"] if columns else []

    def index_part(self, column: Column) -> str:
        """Return a column of an index: of texts and bytes, only their beginning."""
        match column.type:
            case String(length=length):
                return f"{self.quote(column.name)}({min(length, _INDEXED_CHARACTERS)})"
            case Bytes():
                return f"{self.quote(column.name)}({_INDEXED_BYTES})"
        return self.quote(column.name) + (f"({_INDEXED_CHARACTERS})" if column.type.kind in ("text", "json") else "")

    def drop_temporary(self, name: str) -> str:
        return f"DROP TEMPORARY TABLE {self.temporary(name)}"

    def change_type(self, relation: str, column: Column) -> list[str] | None:
        return [
            self.modify(relation, column.name, self.type_sql(column, key=column.primary_key), nullable=column.nullable)
        ]

    def drop_not_null(self, relation: str, column: str, native: str) -> list[str] | None:
        return [self.modify(relation, column, native, nullable=True)]

    def modify(self, relation: str, column: str, native: str, *, nullable: bool) -> str:
        """Return the statement that changes a column's type or nullability."""
        return (
            f"ALTER TABLE {relation} MODIFY COLUMN {self.quote(column)} {native} {'NULL' if nullable else 'NOT NULL'}"
        )

    def watermark_literal(self, value: str, column_type: ColumnType) -> str:
        kind = column_type.kind
        if kind in _NUMBERS:
            return value
        if kind == "date":
            return f"DATE'{value}'"
        if kind in ("timestamp", "timestamp_tz"):
            moment = datetime.fromisoformat(value)
            return self.instant(moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc))
        return self.text_literal(value)

    def watermark_text(self, expression: str, column_type: ColumnType) -> str:
        if column_type.kind in ("timestamp", "timestamp_tz"):
            zone = "+00:00" if column_type.kind == "timestamp_tz" else ""
            return f"DATE_FORMAT({expression}, '%Y-%m-%d %H:%i:%s.%f{zone}')"
        return self.as_text(expression, column_type)
