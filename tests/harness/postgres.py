"""PostgreSQL through psycopg."""

from __future__ import annotations

from collections.abc import Sequence

import psycopg
from psycopg import sql
from psycopg.types.json import set_json_loads

from ematix_flow import PostgresConnection
from ematix_flow.backends.postgres.dialect import PostgresDialect
from ematix_flow.declare.table import TableSpec
from tests.harness.base import Harness, Row


class PostgresHarness(Harness):
    """A database of its own."""

    name = "postgres"
    backend = "postgres"

    def __init__(self, url: str) -> None:
        self._client = psycopg.connect(url, autocommit=True, options="-c TimeZone=UTC")
        set_json_loads(lambda text: text if isinstance(text, str) else bytes(text).decode(), self._client)
        self._connection = PostgresConnection(name="contract_postgres", url=url)

    @property
    def connection(self) -> PostgresConnection:
        return self._connection

    def seed(self, table: TableSpec, rows: Sequence[Row]) -> None:
        dialect = PostgresDialect()
        relation = dialect.relation(table.schema, table.name)
        self._client.execute(f'CREATE SCHEMA IF NOT EXISTS "{table.schema}"')
        self._client.execute(f"DROP TABLE IF EXISTS {relation}")
        self._client.execute(dialect.create_table(relation, table.columns, primary_key=()))
        names = sql.SQL(", ").join(sql.Identifier(name) for name in table.column_names)
        marks = sql.SQL(", ").join(sql.Placeholder() for _ in table.column_names)
        statement = sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(sql.Identifier(table.schema, table.name), names, marks)
        with self._client.cursor() as cursor:
            cursor.executemany(statement, [[row[name] for name in table.column_names] for row in rows])

    def raw_rows(self, schema: str, table: str) -> list[Row]:
        cursor = self._client.execute(f'SELECT * FROM "{schema}"."{table}"')
        names = [item.name for item in cursor.description or ()]
        return [dict(zip(names, row)) for row in cursor.fetchall()]

    def close(self) -> None:
        self._client.close()
