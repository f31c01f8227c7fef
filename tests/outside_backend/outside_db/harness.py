"""The harness with which the contract suite runs for this backend: it reads back by the driver itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import duckdb
from tests.harness.databases import DatabaseHarness

from outside_db.connection import OutsideConnection


def open_system(name: str, folder: Path) -> OutsideHarness:
    """A file of its own."""
    return OutsideHarness(folder / "contract.out")


class OutsideHarness(DatabaseHarness):
    """A file that is opened for each question."""

    name = "outside"
    backend = "outside"
    types: ClassVar[dict[str, str]] = {
        "small_int": "SMALLINT", "integer": "INTEGER", "big_int": "BIGINT", "float": "FLOAT", "double": "DOUBLE",
        "boolean": "BOOLEAN", "text": "VARCHAR", "date": "DATE", "timestamp": "TIMESTAMP",
        "timestamp_tz": "TIMESTAMPTZ", "json": "JSON", "jsonb": "JSON", "uuid": "UUID", "bytes": "BLOB",
    }  # fmt: skip

    def __init__(self, path: Path) -> None:
        self.path = path
        self.execute("SELECT 1")
        self._connection = OutsideConnection(name="contract_outside", file=str(path))

    @property
    def connection(self) -> OutsideConnection:
        return self._connection

    def ask(self, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        with duckdb.connect(self.path) as client:
            client.execute("SET TimeZone = 'UTC'")
            answer = client.execute(sql)
            return [item[0] for item in answer.description or ()], answer.fetchall()

    def fill(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        with duckdb.connect(self.path) as client:
            client.execute("SET TimeZone = 'UTC'")
            client.executemany(sql, rows)
