"""SQLite through Python's own module."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar

from ematix_flow import SQLiteConnection
from ematix_flow.declare.table import TableSpec
from ematix_flow.declare.types import ColumnType, Numeric
from tests.harness.databases import DatabaseHarness


def open_system(name: str, folder: Path) -> SqliteHarness:
    """A file of its own."""
    return SqliteHarness(folder / "contract.db")


class SqliteHarness(DatabaseHarness):
    """A file that is opened for each question, as a person's script would."""

    name = "sqlite"
    backend = "sqlite"
    types: ClassVar[dict[str, str]] = {
        "small_int": "SMALLINT", "integer": "INT", "big_int": "BIGINT", "float": "REAL", "double": "DOUBLE",
        "boolean": "BOOLEAN", "text": "TEXT", "date": "DATE", "timestamp": "TIMESTAMP", "timestamp_tz": "TIMESTAMPTZ",
        "json": "TEXT", "jsonb": "TEXT", "uuid": "TEXT", "bytes": "BLOB",
    }  # fmt: skip

    def __init__(self, path: Path) -> None:
        self.path = path
        self.execute("PRAGMA user_version = 1")  # makes the file
        self._connection = SQLiteConnection(name="contract_sqlite", path=str(path))

    @property
    def connection(self) -> SQLiteConnection:
        return self._connection

    def reference(self, table: TableSpec) -> str:
        return f"{table.schema}_{table.name}"

    def source_table(self, table: TableSpec) -> str:
        return f"main.{self.reference(table)}"

    def relation(self, schema: str, table: str) -> str:
        return f'"{schema}_{table}"'

    def native(self, column_type: ColumnType) -> str:
        """A DECIMAL column would round long numbers to 15 digits, so people keep those as text."""
        long = isinstance(column_type, Numeric) and column_type.precision > 15
        return "TEXT" if long else super().native(column_type)

    def create_schema(self, schema: str) -> None:
        """A schema is only a prefix here."""

    def ask(self, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        with closing(sqlite3.connect(self.path, isolation_level=None)) as client:
            cursor = client.execute(sql)
            return [item[0] for item in cursor.description or ()], cursor.fetchall()

    def fill(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        with closing(sqlite3.connect(self.path)) as client, client:
            client.executemany(sql, rows)

    def given(self, value: Any, column_type: ColumnType) -> Any:
        """SQLite has no dates and no decimals: text is what people store."""
        if isinstance(value, datetime):
            return value.isoformat(sep=" ")
        return str(value) if isinstance(value, (date, Decimal)) else value
