"""How one database writes what every strategy needs; the portable parts are here, a backend overrides the rest."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from ematix_flow.declare.types import Column, ColumnType


class SqlDialect(ABC):
    """Words and shapes of one database's SQL; `changes_roll_back` where a changed table is as before after a rollback."""

    name: str = ""
    meta_schema: str = "ematix_flow"
    creation_lock: str | None = None
    """A statement that keeps others from creating until its transaction ends; None where IF NOT EXISTS is enough."""
    current_schema: str = "current_schema()"
    """Where a table without a schema lies, as SQL."""
    changes_roll_back: bool = True
    sorts_numbers_faster: bool = False
    """Whether counting distinct whole numbers is quicker than grouping by them."""

    @abstractmethod
    def type_sql(self, column: Column, *, key: bool = False) -> str:
        """The column's type in this database; `key` columns may need one that can be indexed."""

    @abstractmethod
    def parse_type(self, native: str) -> ColumnType | None:
        """The declared type a native type means, None when there is no word for it."""

    @abstractmethod
    def sha256(self, text: str) -> str:
        """SHA-256 of a text expression, as bytes."""

    @abstractmethod
    def as_text(self, expression: str, column_type: ColumnType) -> str:
        """The value as text: equal values give equal texts."""

    @abstractmethod
    def instant(self, moment: datetime) -> str:
        """A literal of a TimestampTZ column."""

    @abstractmethod
    def plus(self, instant: str, span: timedelta) -> str:
        """A TimestampTZ expression moved forward."""

    @abstractmethod
    def to_instant(self, expression: str, column_type: ColumnType) -> str:
        """A date or timestamp expression as a TimestampTZ; without a zone it is UTC."""

    @abstractmethod
    def watermark_literal(self, value: str, column_type: ColumnType) -> str:
        """A stored watermark as a literal of its column's type."""

    @abstractmethod
    def watermark_text(self, expression: str, column_type: ColumnType) -> str:
        """A column's value as the text a watermark is stored in."""

    def since(self, query: str, column: str, literal: str) -> str:
        """The query, restricted to rows at or after the literal and rows with NULL."""
        name = self.quote(column)
        return f"SELECT * FROM (\n{query}\n) AS q WHERE {name} >= {literal} OR {name} IS NULL"

    def quote(self, identifier: str) -> str:
        """The identifier, quoted."""
        return '"' + identifier.replace('"', '""') + '"'

    def text_literal(self, value: str) -> str:
        """A text literal."""
        return "'" + value.replace("'", "''") + "'"

    def boolean(self, value: bool) -> str:
        """A literal of a Boolean column."""
        return "TRUE" if value else "FALSE"

    def uuid(self, value: str) -> str:
        """A literal of a UUID column."""
        return self.text_literal(value)

    def relation(self, schema: str, table: str) -> str:
        """The table's full name, quoted."""
        return f"{self.quote(schema)}.{self.quote(table)}" if schema else self.quote(table)

    def equal(self, left: str, right: str, column: Column) -> str:
        """Equal, NULL equal to NULL; plain `=` where NULL cannot be, so that indexes and hash joins serve."""
        if not column.nullable:
            return f"{left} = {right}"
        return f"{left} IS NOT DISTINCT FROM {right}"

    def differs(self, left: str, right: str, column: Column) -> str:
        """Different, NULL different from every value."""
        return f"{left} IS DISTINCT FROM {right}"

    def either(self, condition: str, one: str, other: str, column: Column) -> str:
        """Return one value of a column where the condition holds, and the other where it does not."""
        return f"CASE WHEN {condition} THEN {one} ELSE {other} END"

    def concat(self, parts: Sequence[str]) -> str:
        """Texts joined; none of them is NULL."""
        return f"({' || '.join(parts)})"

    def length(self, expression: str) -> str:
        """Characters of a text."""
        return f"LENGTH({expression})"

    def for_a_publish(self, rows: int) -> Sequence[str]:
        """What a transaction that publishes so many rows is told first, and no other."""
        return ()

    def row_address(self, relation: str) -> str | None:
        """A query for the system column that every row of `relation` has, NULL where it has none; None where no table has one."""
        return None

    def truncate(self, relation: str) -> str:
        """Remove every row, inside the transaction."""
        return f"DELETE FROM {relation}"

    def update_from(self, relation: str, stage: str, *, on: str, sets: Mapping[str, str], where: str | None) -> str:
        """Update rows of `relation` that meet a row of the stage (called `s`)."""
        assignments = ", ".join(f"{self.quote(name)} = {value}" for name, value in sets.items())
        condition = f"({on}) AND ({where})" if where else on
        return f"UPDATE {relation} SET {assignments} FROM {stage} AS s WHERE {condition}"

    def delete_from(self, relation: str, stage: str, *, on: str, where: str) -> str:
        """Delete rows of `relation` that meet a row of the stage (called `s`)."""
        return f"DELETE FROM {relation} WHERE EXISTS (SELECT 1 FROM {stage} AS s WHERE ({on}) AND ({where}))"

    def temporary(self, name: str) -> str:
        """The name of a table only this session sees."""
        return self.quote(name)

    def create_temporary(self, name: str, query: str, *, looked_up_by: Sequence[Column] = ()) -> str:
        """Keep a query's result for this session; a database that can only index while it creates does so here."""
        return f"CREATE TEMPORARY TABLE {self.quote(name)} AS {query}"

    def index_temporary(self, name: str, columns: Sequence[str]) -> str | None:
        """An index on such a table, None where joins do without."""
        return None

    def drop_temporary(self, name: str) -> str:
        """Forget it; must not end the transaction."""
        return f"DROP TABLE {self.temporary(name)}"

    def create_table(self, relation: str, columns: Sequence[Column], *, primary_key: Sequence[str],
                     unique: Sequence[Sequence[str]] = (), looked_up_by: Sequence[Column] = ()) -> str:  # fmt: skip
        """A table with its keys, and an index for lookups where joins do not do without."""
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
        """Lines of a table's definition that index the columns, none where joins do without."""
        return []

    def table_suffix(self) -> str:
        """What follows the column list."""
        return ""

    def create_schema(self, schema: str) -> str | None:
        """The statement that creates a schema, None where there is no such thing."""
        return f"CREATE SCHEMA IF NOT EXISTS {self.quote(schema)}" if schema else None

    def change_type(self, relation: str, column: Column) -> list[str] | None:
        """Statements that change a column's type, None where the database cannot."""
        return [f"ALTER TABLE {relation} ALTER COLUMN {self.quote(column.name)} TYPE {self.type_sql(column)}"]

    def drop_not_null(self, relation: str, column: str, native: str) -> list[str] | None:
        """Statements that let a column be NULL, None where the database cannot."""
        return [f"ALTER TABLE {relation} ALTER COLUMN {self.quote(column)} DROP NOT NULL"]

    def names(self, columns: Sequence[str]) -> str:
        """Quoted names, joined by commas."""
        return ", ".join(self.quote(name) for name in columns)
