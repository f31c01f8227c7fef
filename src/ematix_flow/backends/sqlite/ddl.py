"""DDL of SQLite tables: inspection and column changes."""

from __future__ import annotations

import re

from ematix_flow.backends.sqlite import values
from ematix_flow.backends.sqlite.dialect import SqliteDialect
from ematix_flow.backends.sqlite.session import connect_target, database_path
from ematix_flow.contract.ddl import ChangeType, ColumnState, DropNotNull, TableState
from ematix_flow.contract.shape import TargetShape
from ematix_flow.declare.connections import SQLiteConnection
from ematix_flow.declare.types import Column
from ematix_flow.families.sql.session import SqlSession
from ematix_flow.families.sql.table_rebuild import RebuildingDdl, TableLayout

_QUOTED = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|`[^`]*`|\[[^\]]*\]")
_UNKEPT = re.compile(
    r"\b(CHECK|REFERENCES|COLLATE|DEFAULT|GENERATED|AUTOINCREMENT|WITHOUT\s+ROWID|STRICT|ON\s+CONFLICT|VIRTUAL\s+TABLE)\b",
    re.IGNORECASE,
)


class SqliteDdl(RebuildingDdl):
    """Inspection of SQLite's tables through pragmas, and their changes, by copies."""

    dialect = SqliteDialect()

    def __init__(self, connection: SQLiteConnection) -> None:
        self._connection = connection
        self._path = database_path(connection)

    def connect(self) -> SqlSession:
        return connect_target(self._connection)

    def inspect(self, shape: TargetShape) -> TableState | None:
        if not self._path.exists():
            return None
        with self.connect() as session:
            columns, key = self._columns(session, shape)
            if not columns:
                return None
            rows = session.scalar(f"SELECT COUNT(*) FROM {self.dialect.relation(shape.table.schema, shape.table.name)}")
        return TableState(columns, key, int(rows))

    def layout(self, session: SqlSession, shape: TargetShape) -> TableLayout:
        columns, key = self._columns(session, shape)
        table = self._literal(shape)
        unique = []
        for name in session.rows(f"SELECT name FROM pragma_index_list({table}) WHERE origin = 'u' ORDER BY seq DESC"):
            index = self.dialect.text_literal(str(name[0]))
            unique.append(
                tuple(
                    str(row[0]) for row in session.rows(f"SELECT name FROM pragma_index_info({index}) ORDER BY seqno")
                )
            )
        attached = session.rows(
            f"SELECT sql FROM main.sqlite_master WHERE tbl_name = {table} AND type IN ('index', 'trigger') AND sql IS NOT NULL"
        )
        written = str(
            session.scalar(f"SELECT sql FROM main.sqlite_master WHERE name = {table} AND type = 'table'") or ""
        )
        lost = sorted(
            {" ".join(lost_part.upper().split()) for lost_part in _UNKEPT.findall(_QUOTED.sub("''", written))}
        )
        return TableLayout(columns, key, tuple(unique), tuple(str(row[0]) for row in attached), tuple(lost))

    def can_alter(self, step: ChangeType | DropNotNull, layout: TableLayout) -> bool:
        return False

    def converted(self, name: str, column: Column, before: ColumnState) -> str:
        if column.type.kind in ("text", "string"):
            return f"CASE WHEN {name} IS NULL THEN NULL ELSE {values.stored(name, column.type)} END"
        wrong = values.MISMATCH.format(value=name)
        return (
            f"CASE WHEN {name} IS NULL THEN NULL WHEN {values.is_valid(name, column.type)} "
            f"THEN {values.stored(name, column.type)} ELSE {wrong} END"
        )

    def rename(self, shape: TargetShape, temporary: str) -> str:
        d = self.dialect
        return f"ALTER TABLE {d.relation(shape.table.schema, temporary)} RENAME TO {d.relation(shape.table.schema, shape.table.name)}"

    def before_copy(self, session: SqlSession) -> None:
        # Otherwise renaming the copy fails on views that use the table, which does not exist at that moment.
        session.execute("PRAGMA legacy_alter_table = ON")

    def _literal(self, shape: TargetShape) -> str:
        return self.dialect.text_literal(self.dialect.table_name(shape.table.schema, shape.table.name))

    def _columns(self, session: SqlSession, shape: TargetShape) -> tuple[tuple[ColumnState, ...], tuple[str, ...]]:
        rows = session.rows(
            f'SELECT name, type, "notnull", pk FROM pragma_table_info({self._literal(shape)}) ORDER BY cid'
        )
        columns = tuple(
            ColumnState(str(name), str(native), self.dialect.parse_type(str(native)), not required)
            for name, native, required, _ in rows
        )
        key = sorted((int(place), str(name)) for name, _, _, place in rows if place)
        return columns, tuple(name for _, name in key)
