"""DuckDB through its own client."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import duckdb

from ematix_flow import DuckDBConnection
from tests.harness.databases import DatabaseHarness


def open_system(name: str, folder: Path) -> DuckDBHarness:
    """A file of its own."""
    return DuckDBHarness(folder / "contract.duckdb")


class DuckDBHarness(DatabaseHarness):
    """A file that is opened for each question: whoever has it open keeps other processes out."""

    name = "duckdb"
    backend = "duckdb"
    types: ClassVar[dict[str, str]] = {
        "small_int": "SMALLINT", "integer": "INTEGER", "big_int": "BIGINT", "float": "FLOAT", "double": "DOUBLE",
        "boolean": "BOOLEAN", "text": "VARCHAR", "date": "DATE", "timestamp": "TIMESTAMP",
        "timestamp_tz": "TIMESTAMPTZ", "json": "JSON", "jsonb": "JSON", "uuid": "UUID", "bytes": "BLOB",
    }  # fmt: skip

    def __init__(self, path: Path) -> None:
        self.path = path
        self.execute("SELECT 1")  # makes the file
        self._connection = DuckDBConnection(name="contract_duckdb", path=str(path))

    @property
    def connection(self) -> DuckDBConnection:
        return self._connection

    def ask(self, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        with duckdb.connect(self.path) as client:
            client.execute("SET TimeZone = 'UTC'")
            cursor = client.execute(sql)
            return [item[0] for item in cursor.description or ()], cursor.fetchall()

    def fill(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        with duckdb.connect(self.path) as client:
            client.execute("SET TimeZone = 'UTC'")
            client.executemany(sql, rows)
