"""The SQL dialect that the strategies need: portable SQL here, overridden by each backend where it differs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from ematix_flow.declare.types import Column, ColumnType


class SqlDialect(ABC):
    """The SQL dialect of one database; `changes_roll_back`: whether a rollback also undoes ALTER TABLE."""

    name: str = ""
    meta_schema: str = "ematix_flow"
    creation_lock: str | None = None
    """A statement that blocks concurrent creation until its transaction ends; None if IF NOT EXISTS is enough."""
    current_schema: str = "current_schema()"
    """SQL for the schema of a table that is declared without one."""
    changes_roll_back: bool = True
    sorts_numbers_faster: bool = False
    """Whether counting distinct integers is faster than grouping by them."""

    @abstractmethod
    def type_sql(self, column: Column, *, key: bool = False) -> str:
        """Return the column's native type; a `key` column may need one that can be indexed."""

    @abstractmethod
    def parse_type(self, native: str) -> ColumnType | None:
        """Return the declared type of a native type, None when there is no equivalent."""

    @abstractmethod
    def sha256(self, text: str) -> str:
        """Return the SHA-256 of a text expression, as bytes."""

    @abstractmethod
    def as_text(self, expression: str, column_type: ColumnType) -> str:
        """Return the value as text; equal values give equal texts."""

    @abstractmethod
    def instant(self, moment: datetime) -> str:
        """Return a literal of a TimestampTZ column."""

    @abstractmethod
    def plus(self, instant: str, span: timedelta) -> str:
        """Return a TimestampTZ expression moved forward by `span`."""

    @abstractmethod
    def to_instant(self, expression: str, column_type: ColumnType) -> str:
        """Return a date or timestamp expression as a TimestampTZ; one without a time zone is taken as UTC."""

    @abstractmethod
    def watermark_literal(self, value: str, column_type: ColumnType) -> str:
        """Return a stored watermark as a literal of its column's type."""

    @abstractmethod
    def watermark_text(self, expression: str, column_type: ColumnType) -> str:
        """Return a column's value as the text in which a watermark is stored."""

    def since(self, query: str, column: str, literal: str) -> str:
        """Return the query, restricted to rows at or after the literal and rows with NULL."""
        name = self.quote(column)
        return f"SELECT * FROM (\n{query}\n) AS q WHERE {name} >= {literal} OR {name} IS NULL"

    def quote(self, identifier: str) -> str:
        """Return the quoted identifier."""
        return '"' + identifier.replace('"', '""') + '"'

    def text_literal(self, value: str) -> str:
        """Return a text literal."""
        return "'" + value.replace("'", "''") + "'"

    def boolean(self, value: bool) -> str:
        """Return a literal of a Boolean column."""
        return "TRUE" if value else "FALSE"

    def uuid(self, value: str) -> str:
        """Return a literal of a UUID column."""
        return self.text_literal(value)

    def relation(self, schema: str, table: str) -> str:
        """Return the table's full name, quoted."""
        return f"{self.quote(schema)}.{self.quote(table)}" if schema else self.quote(table)

    def equal(self, left: str, right: str, column: Column) -> str:
        """Return a NULL-safe equality; plain `=` for a NOT NULL column, so that indexes and hash joins apply."""
        if not column.nullable:
            return f"{left} = {right}"
        return f"{left} IS NOT DISTINCT FROM {right}"

    def differs(self, left: str, right: str, column: Column) -> str:
        """Return a NULL-safe inequality."""
        return f"{left} IS DISTINCT FROM {right}"

    def either(self, condition: str, one: str, other: str, column: Column) -> str:
        """Return the SQL for `one` where the condition holds and `other` where it does not."""
        return f"CASE WHEN {condition} THEN {one} ELSE {other} END"

    def concat(self, parts: Sequence[str]) -> str:
        """Return the concatenation of texts, none of which is NULL."""
        return f"({' || '.join(parts)})"

    def length(self, expression: str) -> str:
        """Return the number of characters of a text."""
        return f"LENGTH({expression})"

    def for_a_publish(self, rows: int) -> Sequence[str]:
        """Return the settings for a transaction that publishes this many rows; they must end with the transaction."""
        return ()

    def row_address(self, relation: str) -> str | None:
        """Return a query for the name of the system column that addresses a row of `relation` (NULL: none), or None."""
        return None

    def truncate(self, relation: str) -> str:
        """Return the statement that deletes every row and can be rolled back."""
        return f"DELETE FROM {relation}"

    def update_from(self, relation: str, stage: str, *, on: str, sets: Mapping[str, str], where: str | None) -> str:
        """Return an UPDATE of the rows of `relation` that match a row of the stage (alias `s`)."""
        assignments = ", ".join(f"{self.quote(name)} = {value}" for name, value in sets.items())
        condition = f"({on}) AND ({where})" if where else on
        return f"UPDATE {relation} SET {assignments} FROM {stage} AS s WHERE {condition}"

    def delete_from(self, relation: str, stage: str, *, on: str, where: str) -> str:
        """Return a DELETE of the rows of `relation` that match a row of the stage (alias `s`)."""
        return f"DELETE FROM {relation} WHERE EXISTS (SELECT 1 FROM {stage} AS s WHERE ({on}) AND ({where}))"

    def temporary(self, name: str) -> str:
        """Return the name of a table that is visible to this session only."""
        return self.quote(name)

    def create_temporary(self, name: str, query: str, *, looked_up_by: Sequence[Column] = ()) -> str:
        """Return SQL for a temporary table of a query's result; some databases must create its index here."""
        return f"CREATE TEMPORARY TABLE {self.quote(name)} AS {query}"

    def index_temporary(self, name: str, columns: Sequence[str]) -> str | None:
        """Return the statement that indexes a temporary table, None where joins need no index."""
        return None

    def drop_temporary(self, name: str) -> str:
        """Return the statement that drops a temporary table; it must not end the transaction."""
        return f"DROP TABLE {self.temporary(name)}"

    def create_table(self, relation: str, columns: Sequence[Column], *, primary_key: Sequence[str],
                     unique: Sequence[Sequence[str]] = (), looked_up_by: Sequence[Column] = ()) -> str:  # fmt: skip
        """Return a CREATE TABLE with keys, and with an index for lookups where joins need one."""
        keyed = {name for group in (primary_key, *unique) for name in group}
        lines = [
            f"{self.quote(column.name)} {self.type_sql(column, key=column.name in keyed)}"
            f"{'' if column.nullable and column.name not in primary_key else ' NOT NULL'}"
            for column in columns
        ]
        if primary_key:
            lines.append(f"PRIMARY KEY ({self.names(primary_key)})")
        lines += [f"UNIQUE ({self.names(group)})" for group in unique]
        lines += self.lookup_lines(looked_up_by)
        return f"CREATE TABLE IF NOT EXISTS {relation} ({', '.join(lines)}){self.table_suffix()}"

    def lookup_lines(self, columns: Sequence[Column]) -> list[str]:
        """Return the lines of a table definition that index the columns, none where joins need no index."""
        return []

    def table_suffix(self) -> str:
        """Return the SQL that follows the column list."""
        return ""

    def create_schema(self, schema: str) -> str | None:
        """Return the statement that creates a schema, None where the database has no schemas."""
        return f"CREATE SCHEMA IF NOT EXISTS {self.quote(schema)}" if schema else None

    def change_type(self, relation: str, column: Column) -> list[str] | None:
        """Return the statements that change a column's type, None where the database cannot."""
        return [f"ALTER TABLE {relation} ALTER COLUMN {self.quote(column.name)} TYPE {self.type_sql(column)}"]

    def drop_not_null(self, relation: str, column: str, native: str) -> list[str] | None:
        """Return the statements that make a column nullable, None where the database cannot."""
        return [f"ALTER TABLE {relation} ALTER COLUMN {self.quote(column)} DROP NOT NULL"]

    def names(self, columns: Sequence[str]) -> str:
        """Return the quoted names, joined by commas."""
        return ", ".join(self.quote(name) for name in columns)
