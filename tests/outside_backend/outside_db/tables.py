"""Tables: what they look like, and how they are changed (by a copy)."""

from __future__ import annotations

from ematix_flow.contract.ddl import ChangeType, ColumnState, DropNotNull, TableState
from ematix_flow.contract.shape import TargetShape
from ematix_flow.declare.types import Column
from ematix_flow.families.sql.session import SqlSession
from ematix_flow.families.sql.table_rebuild import RebuildingDdl, TableLayout
from outside_db.connection import OutsideConnection
from outside_db.database import OutsideSession, connect, place
from outside_db.dialect import OutsideDialect


class OutsideDdl(RebuildingDdl):
    """The tables of one database."""

    dialect = OutsideDialect()

    def __init__(self, connection: OutsideConnection) -> None:
        self._connection = connection

    def connect(self) -> OutsideSession:
        return connect(self._connection)

    def inspect(self, shape: TargetShape) -> TableState | None:
        if not place(self._connection).exists():
            return None
        with self.connect() as session:
            layout = self.layout(session, shape)
        return TableState(layout.columns, layout.primary_key) if layout.columns else None

    def layout(self, session: SqlSession, shape: TargetShape) -> TableLayout:
        text = self.dialect.text_literal
        here = f"schema_name = {text(shape.table.schema or 'main')} AND table_name = {text(shape.table.name)}"
        rows = session.rows(
            f"SELECT column_name, data_type, is_nullable FROM duckdb_columns() WHERE {here} ORDER BY column_index"
        )
        keys = session.rows(f"SELECT constraint_type, constraint_column_names FROM duckdb_constraints() WHERE {here}")
        return TableLayout(
            tuple(
                ColumnState(name, native, self.dialect.parse_type(native), bool(nullable))
                for name, native, nullable in rows
            ),
            next((tuple(names) for kind, names in keys if kind == "PRIMARY KEY"), ()),
            tuple(tuple(names) for kind, names in keys if kind == "UNIQUE"),
        )

    def can_alter(self, step: ChangeType | DropNotNull, layout: TableLayout) -> bool:
        return False

    def converted(self, name: str, column: Column, before: ColumnState) -> str:
        return f"CAST({name} AS {self.dialect.type_sql(column)})"

    def rename(self, shape: TargetShape, temporary: str) -> str:
        d = self.dialect
        return f"ALTER TABLE {d.relation(shape.table.schema, temporary)} RENAME TO {d.quote(shape.table.name)}"
