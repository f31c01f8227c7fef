"""MariaDB and MySQL 8 through PyMySQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar
from urllib.parse import urlsplit

import pymysql

from ematix_flow import MySQLConnection
from ematix_flow.declare.types import ColumnType
from tests.harness.base import Row
from tests.harness.databases import DatabaseHarness, new_database, with_database


def open_system(name: str, url: str) -> MySqlHarness:
    """A new database on the server."""
    return MySqlHarness(name, url)


class MySqlHarness(DatabaseHarness):
    """A database of its own; other schemas are databases beside it."""

    backend = "mysql"
    mark = "%s"
    quotes = "`"
    types: ClassVar[dict[str, str]] = {
        "small_int": "smallint", "integer": "int", "big_int": "bigint", "float": "float", "double": "double",
        "boolean": "tinyint(1)", "text": "longtext", "date": "date", "timestamp": "datetime(6)",
        "timestamp_tz": "datetime(6)", "json": "longtext", "jsonb": "json", "uuid": "char(36)", "bytes": "longblob",
    }  # fmt: skip

    def __init__(self, name: str, server: str) -> None:
        self.name = name
        parts = urlsplit(server)
        self._client: Any = pymysql.connect(
            host=parts.hostname, port=parts.port or 3306, user=parts.username, password=parts.password or "",
            autocommit=True, charset="utf8mb4", init_command="SET time_zone = '+00:00'",
        )  # fmt: skip
        self._made = [new_database()]
        self.execute(f"CREATE DATABASE {self._made[0]} CHARACTER SET utf8mb4")
        self.url = with_database(server, self._made[0])
        self._connection = MySQLConnection(name=f"contract_{name}", url=self.url)

    @property
    def connection(self) -> MySQLConnection:
        return self._connection

    def ask(self, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        with self._client.cursor() as cursor:
            cursor.execute(sql)
            return [item[0] for item in cursor.description or ()], list(cursor.fetchall())

    def fill(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        with self._client.cursor() as cursor:
            cursor.executemany(sql, rows)

    def given(self, value: Any, column_type: ColumnType) -> Any:
        # PyMySQL writes a float with 15 digits, which is not always the same number.
        return repr(value) if column_type.kind in ("float", "double") and value is not None else value

    def create_schema(self, schema: str) -> None:
        super().create_schema(schema)
        self._made.append(schema)

    def raw_rows(self, schema: str, table: str) -> list[Row]:
        """A FLOAT is shown with six digits unless it is calculated with."""
        _, columns = self.ask(
            "SELECT column_name, data_type FROM information_schema.columns "
            f"WHERE table_schema = '{schema}' AND table_name = '{table}' ORDER BY ordinal_position"
        )
        chosen = [f"`{name}` + 0e0" if kind == "float" else f"`{name}`" for name, kind in columns]
        _, rows = self.ask(f"SELECT {', '.join(chosen)} FROM {self.relation(schema, table)}")
        return [dict(zip([name for name, _ in columns], row, strict=True)) for row in rows]

    def close(self) -> None:
        for database in self._made:
            self.execute(f"DROP DATABASE IF EXISTS `{database}`")
        self._client.close()
