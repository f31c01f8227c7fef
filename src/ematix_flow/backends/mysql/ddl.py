"""DDL of MySQL and MariaDB tables: inspection and changes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from ematix_flow.backends.mysql.dialect import LONGEST_VARCHAR, MySqlDialect
from ematix_flow.backends.mysql.session import collation_of, connect
from ematix_flow.contract.ddl import ChangeType, ColumnState, DdlStep, TableState
from ematix_flow.contract.shape import TargetShape
from ematix_flow.declare.connections import MySQLConnection
from ematix_flow.declare.types import JSON, Column, ColumnType, String
from ematix_flow.families.sql.ddl import SqlDdl
from ematix_flow.families.sql.session import SqlSession

# One native type is used for several declared types; only the declaration shows which one a column has.
_SAME_STORAGE = (
    frozenset({"timestamp", "timestamp_tz"}),
    frozenset({"json", "jsonb"}),
    frozenset({"json", "text"}),
)

_JSON_CHECK = re.compile(r"json_valid\(`(.+)`\)", re.IGNORECASE)


class MySqlDdl(SqlDdl):
    """Inspection of MySQL's tables through information_schema, and their changes."""

    def __init__(self, connection: MySQLConnection) -> None:
        self._connection = connection
        self.dialect: MySqlDialect = MySqlDialect(lambda: collation_of(connection))

    def connect(self) -> SqlSession:
        return connect(self._connection)

    def stored_type(self, shape: TargetShape, column: Column) -> ColumnType | None:
        """Return the type that `inspect` reports for a column created from this declaration."""
        stored = super().stored_type(shape, column)
        # JSON is stored as LONGTEXT, but must not be reported as Text: not every text is valid JSON.
        return column.type if isinstance(column.type, (String, JSON)) else stored

    def inspect(self, shape: TargetShape) -> TableState | None:
        table, literal = shape.table, self.dialect.text_literal
        schema, name = literal(table.schema) if table.schema else "DATABASE()", literal(table.name)
        place = f"table_schema = {schema} AND table_name = {name}"
        with self.connect() as session:
            table_rows = session.rows(
                f"SELECT table_rows, table_collation FROM information_schema.tables WHERE {place}"
            )
            if not table_rows:
                return None
            rows, collation = table_rows[0]
            columns = session.rows(
                "SELECT column_name, column_type, is_nullable, character_set_name, collation_name "
                f"FROM information_schema.columns WHERE {place} ORDER BY ordinal_position"
            )
            key = session.rows(
                "SELECT column_name FROM information_schema.statistics "
                f"WHERE {place} AND index_name = 'PRIMARY' ORDER BY seq_in_index"
            )
            documents = _json_columns(session, f"constraint_schema = {schema} AND table_name = {name}")
        wanted = {column.name: self.stored_type(shape, column) for column in table.columns}
        states = []
        for column, kind, nullable, charset, order in columns:
            native = "json" if column in documents else str(kind)
            found_type = self._declared_type(native, wanted.get(column))
            if native != "json" and order not in (None, collation):
                native += f" CHARACTER SET {charset} COLLATE {order}"
            states.append(ColumnState(str(column), native, found_type, nullable == "YES"))
        return TableState(tuple(states), tuple(str(row[0]) for row in key), int(rows) if rows else None)

    def _declared_type(self, native: str, wanted: ColumnType | None) -> ColumnType | None:
        declared = self.dialect.parse_type(native)
        if (
            declared is not None
            and wanted is not None
            and (_same_storage(declared, wanted) or _long_text(declared, wanted))
        ):
            return wanted
        return declared

    def statements(self, shape: TargetShape, steps: Sequence[DdlStep]) -> list[str]:
        """Return the steps as SQL; a changed column keeps its NULL or NOT NULL, which MODIFY would otherwise reset."""
        keyed = {name for group in (shape.table.primary_key, *shape.table.unique) for name in group}
        ready = [
            ChangeType(
                replace(step.column, nullable=step.before.nullable, primary_key=step.column.name in keyed), step.before
            )
            if isinstance(step, ChangeType)
            else step
            for step in steps
        ]
        return super().statements(shape, ready)


def _same_storage(one: ColumnType, other: ColumnType) -> bool:
    return any({one.kind, other.kind} <= group for group in _SAME_STORAGE)


def _long_text(parsed: ColumnType, wanted: ColumnType) -> bool:
    """Return whether a declared String is longer than any VARCHAR: it is LONGTEXT, and every load checks its length."""
    return parsed.kind == "text" and isinstance(wanted, String) and wanted.length > LONGEST_VARCHAR


def _json_columns(session: SqlSession, place: str) -> set[str]:
    """Return the columns with a JSON check on MariaDB, where JSON is LONGTEXT with a check."""
    if "MariaDB" not in str(session.scalar("SELECT VERSION()")):
        return set()
    checks = session.rows(f"SELECT check_clause FROM information_schema.check_constraints WHERE {place}")
    matches = [_JSON_CHECK.fullmatch(str(row[0])) for row in checks]
    return {check.group(1) for check in matches if check}
