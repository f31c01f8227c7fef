"""DDL of PostgreSQL tables: inspection."""

from __future__ import annotations

from ematix_flow.backends.postgres.dialect import PostgresDialect
from ematix_flow.backends.postgres.session import connect
from ematix_flow.contract.ddl import ColumnState, TableState
from ematix_flow.contract.shape import TargetShape
from ematix_flow.declare.connections import PostgresConnection
from ematix_flow.families.sql.ddl import SqlDdl
from ematix_flow.families.sql.session import SqlSession


class PostgresDdl(SqlDdl):
    """Inspection of PostgreSQL's tables through pg_catalog, and their changes."""

    dialect = PostgresDialect()

    def __init__(self, connection: PostgresConnection) -> None:
        self._connection = connection

    def connect(self) -> SqlSession:
        return connect(self._connection)

    def inspect(self, shape: TargetShape) -> TableState | None:
        name = self.dialect.text_literal(self.dialect.relation(shape.table.schema, shape.table.name))
        with self.connect() as session:
            oid = session.scalar(f"SELECT to_regclass({name})::oid")
            if oid is None:
                return None
            columns = session.rows(
                "SELECT attname, format_type(atttypid, atttypmod), NOT attnotnull FROM pg_attribute "
                f"WHERE attrelid = {oid} AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
            )
            key = session.rows(
                "SELECT a.attname FROM pg_index i CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY AS k(attnum, n) "
                f"JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum "
                f"WHERE i.indrelid = {oid} AND i.indisprimary ORDER BY k.n"
            )
            rows = session.scalar(f"SELECT reltuples::bigint FROM pg_class WHERE oid = {oid}")
        states = tuple(
            ColumnState(str(column), str(native), self.dialect.parse_type(str(native)), bool(nullable))
            for column, native, nullable in columns
        )
        return TableState(states, tuple(str(row[0]) for row in key), int(rows) if rows and rows > 0 else None)
