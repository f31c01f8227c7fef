"""DDL of DuckDB tables: inspection and column changes."""

from __future__ import annotations

from ematix_flow.backends.duckdb.dialect import DuckdbDialect
from ematix_flow.backends.duckdb.session import catalog_name, connect_source, connect_target, database_path
from ematix_flow.contract.ddl import ChangeType, ColumnState, DropNotNull, TableState
from ematix_flow.contract.shape import TargetShape
from ematix_flow.declare.connections import DuckDBConnection
from ematix_flow.declare.types import Column
from ematix_flow.families.sql.session import SqlSession
from ematix_flow.families.sql.table_rebuild import RebuildingDdl, TableLayout


class DuckdbDdl(RebuildingDdl):
    """Inspection of DuckDB's tables through its catalog functions, and their changes."""

    def __init__(self, connection: DuckDBConnection) -> None:
        self._connection = connection
        self._path = database_path(connection)
        self.dialect = DuckdbDialect(catalog_name(self._path))

    def connect(self) -> SqlSession:
        return connect_target(self._connection)

    def inspect(self, shape: TargetShape) -> TableState | None:
        if not self._path.exists():
            return None
        with connect_source(self._connection) as session:
            layout = self.layout(session, shape)
            rows = session.scalar(f"SELECT estimated_size FROM duckdb_tables() WHERE {self._is_table(shape)}")
        if not layout.columns:
            return None
        return TableState(layout.columns, layout.primary_key, int(rows) if rows is not None else None)

    def layout(self, session: SqlSession, shape: TargetShape) -> TableLayout:
        here = self._is_table(shape)
        rows = session.rows(
            "SELECT column_name, data_type, is_nullable, column_default FROM duckdb_columns() "
            f"WHERE {here} ORDER BY column_index"
        )
        columns = tuple(
            ColumnState(str(name), str(native), self.dialect.parse_type(str(native)), bool(nullable))
            for name, native, nullable, _ in rows
        )
        keys = session.rows(f"SELECT constraint_type, constraint_column_names FROM duckdb_constraints() WHERE {here}")
        indexes = session.rows(f"SELECT sql FROM duckdb_indexes() WHERE {here} AND sql IS NOT NULL")
        lost = {kind for kind, _ in keys if kind not in ("PRIMARY KEY", "UNIQUE", "NOT NULL")}
        if any(default is not None for *_, default in rows):
            lost.add("DEFAULT")
        return TableLayout(
            columns,
            next((tuple(names) for kind, names in keys if kind == "PRIMARY KEY"), ()),
            tuple(tuple(names) for kind, names in keys if kind == "UNIQUE"),
            tuple(str(row[0]) for row in indexes),
            tuple(sorted(lost)),
        )

    def can_alter(self, step: ChangeType | DropNotNull, layout: TableLayout) -> bool:
        """Return whether no key and no index contains the column."""
        name = step.column.name
        keyed = {column for group in (layout.primary_key, *layout.unique) for column in group}
        return name not in keyed and not layout.attached

    def converted(self, name: str, column: Column, before: ColumnState) -> str:
        return f"CAST({name} AS {self.dialect.type_sql(column)})"

    def rename(self, shape: TargetShape, temporary: str) -> str:
        d = self.dialect
        return f"ALTER TABLE {d.relation(shape.table.schema, temporary)} RENAME TO {d.quote(shape.table.name)}"

    def _is_table(self, shape: TargetShape) -> str:
        schema = self.dialect.text_literal(shape.table.schema or "main")
        table = self.dialect.text_literal(shape.table.name)
        return (
            "database_name = current_database() "
            f"AND lower(schema_name) = lower({schema}) AND lower(table_name) = lower({table})"
        )
