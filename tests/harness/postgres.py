"""PostgreSQL through psycopg."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import psycopg
from psycopg.types.json import set_json_loads

from ematix_flow import PostgresConnection
from tests.harness.databases import DatabaseHarness, new_database, with_database


def open_system(name: str, url: str) -> PostgresHarness:
    """A new database on the server."""
    return PostgresHarness(url)


class PostgresHarness(DatabaseHarness):
    """A database of its own."""

    name = "postgres"
    backend = "postgres"
    mark = "%s"
    types: ClassVar[dict[str, str]] = {
        "small_int": "smallint", "integer": "integer", "big_int": "bigint", "float": "real",
        "double": "double precision", "boolean": "boolean", "text": "text", "date": "date", "timestamp": "timestamp",
        "timestamp_tz": "timestamptz", "json": "json", "jsonb": "jsonb", "uuid": "uuid", "bytes": "bytea",
    }  # fmt: skip

    def __init__(self, server: str) -> None:
        self._server = server
        self._database = new_database()
        self._on_server(f"CREATE DATABASE {self._database}")
        self.url = with_database(server, self._database)
        self._client = psycopg.connect(self.url, autocommit=True, options="-c TimeZone=UTC")
        set_json_loads(lambda text: text if isinstance(text, str) else bytes(text).decode(), self._client)
        self._connection = PostgresConnection(name="contract_postgres", url=self.url)

    @property
    def connection(self) -> PostgresConnection:
        return self._connection

    def ask(self, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        cursor = self._client.execute(sql.encode())
        if cursor.description is None:
            return [], []
        return [item.name for item in cursor.description], cursor.fetchall()

    def fill(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        with self._client.cursor() as cursor:
            cursor.executemany(sql.encode(), rows)

    def close(self) -> None:
        self._client.close()
        self._on_server(f"DROP DATABASE {self._database} WITH (FORCE)")

    def _on_server(self, statement: str) -> None:
        with psycopg.connect(self._server, autocommit=True) as server:
            server.execute(statement.encode())
