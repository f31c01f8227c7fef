"""What the harnesses of databases share: a plain table made and filled by the database's own client."""

from __future__ import annotations

import secrets
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar
from urllib.parse import urlsplit

from ematix_flow.declare.table import TableSpec
from ematix_flow.declare.types import ColumnType, Numeric, String
from tests.harness.base import Harness, Row


class DatabaseHarness(Harness):
    """A database with an SQL client; a subclass says how to run a statement and what its types are called."""

    types: ClassVar[dict[str, str]]
    mark: ClassVar[str] = "?"
    quotes: ClassVar[str] = '"'

    @abstractmethod
    def ask(self, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Column names and rows of a statement; both empty where it gives none."""

    @abstractmethod
    def fill(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run an INSERT once per row."""

    def execute(self, sql: str) -> None:
        """Run a statement for its effect."""
        self.ask(sql)

    def quote(self, name: str) -> str:
        """The name between the database's quotes."""
        return f"{self.quotes}{name}{self.quotes}"

    def relation(self, schema: str, table: str) -> str:
        """The table's full name."""
        return f"{self.quote(schema)}.{self.quote(table)}"

    def native(self, column_type: ColumnType) -> str:
        """The type a person would give such a column here."""
        if isinstance(column_type, String):
            return f"varchar({column_type.length})"
        if isinstance(column_type, Numeric):
            return f"decimal({column_type.precision},{column_type.scale})"
        return self.types[column_type.kind]

    def create_schema(self, schema: str) -> None:
        """The schema, unless it is there."""
        self.execute(f"CREATE SCHEMA IF NOT EXISTS {self.quote(schema)}")

    def given(self, value: Any, column_type: ColumnType) -> Any:
        """The value as the client takes it."""
        return value

    def seed(self, table: TableSpec, rows: Sequence[Row]) -> None:
        relation = self.relation(table.schema, table.name)
        self.create_schema(table.schema)
        self.execute(f"DROP TABLE IF EXISTS {relation}")
        columns = ", ".join(f"{self.quote(column.name)} {self.native(column.type)} NULL" for column in table.columns)
        self.execute(f"CREATE TABLE {relation} ({columns})")
        if not rows:
            return
        names = ", ".join(self.quote(name) for name in table.column_names)
        marks = ", ".join([self.mark] * len(table.columns))
        values = [[self.given(row[column.name], column.type) for column in table.columns] for row in rows]
        self.fill(f"INSERT INTO {relation} ({names}) VALUES ({marks})", values)

    def raw_rows(self, schema: str, table: str) -> list[Row]:
        names, rows = self.ask(f"SELECT * FROM {self.relation(schema, table)}")
        return [dict(zip(names, row, strict=True)) for row in rows]


def new_database() -> str:
    """A name no other worker has."""
    return f"contract_{secrets.token_hex(6)}"


def with_database(url: str, name: str) -> str:
    """The url of another database on the same server."""
    return urlsplit(url)._replace(path=f"/{name}").geturl()
