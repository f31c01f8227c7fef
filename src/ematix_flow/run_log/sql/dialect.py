"""The differences between SQL databases."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ematix_flow.foundation.clock import now as clock_now
from ematix_flow.foundation.errors import FlowError


class RunLogDialect(ABC):
    """A database: how to connect, the SQL that differs, and the meaning of its errors.

    Statements are written once, with `?` for values and `$` before the name of a table.
    """

    mark = "?"
    prefix = ""
    """The replacement of `$`: a schema, a prefix of every name, or nothing."""
    schema = "'main'"
    table_prefix = ""
    key_type = "TEXT"
    word_type = "TEXT"
    text_type = "TEXT"
    row_lock = ""
    """Appended to a SELECT, it blocks other writers of the row."""
    begin_read = "BEGIN"
    begin_write = "BEGIN"
    has_clock = False
    """Whether the database is a server, whose clock all workers share."""
    keeps_open = True
    per_process = True
    """Whether a forked child needs its own connection."""
    may_vanish = False
    """Whether the server may have closed an idle connection."""

    def __init__(self, *, label: str, errors: tuple[type[BaseException], ...]) -> None:
        self.label = label
        self.errors = errors
        self.lock = threading.RLock()

    @abstractmethod
    def connect(self) -> Any:
        """Return an open connection without a transaction."""

    @abstractmethod
    def execute(self, raw: Any, sql: str, values: Sequence[Any]) -> tuple[list[tuple[Any, ...]], int]:
        """Return the rows of a statement, and how many rows it changed."""

    @abstractmethod
    def execute_many(self, raw: Any, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """Execute the same statement for many rows."""

    @abstractmethod
    def translate(self, error: BaseException) -> FlowError:
        """Return the FlowError for the driver's error."""

    def is_conflict(self, error: BaseException) -> bool:
        """Return whether the transaction was rolled back in favour of another one, and may be retried."""
        return False

    def now(self, session: RunLogSession) -> datetime:
        """Return the time of the store's clock, if it has one, else of this machine; leases are compared with it."""
        return clock_now()

    def upsert(self, table: str, columns: Sequence[str], keys: Sequence[str]) -> str:
        """Return the statement that inserts a row, or replaces the one with the same key."""
        changed = ", ".join(f"{column} = excluded.{column}" for column in columns if column not in keys)
        return f"{insert(table, columns)} ON CONFLICT ({', '.join(keys)}) DO UPDATE SET {changed}"

    def add(self, table: str, columns: Sequence[str]) -> str:
        """Return the statement that inserts a row unless its key exists."""
        return f"{insert(table, columns)} ON CONFLICT DO NOTHING"

    def create_index(self, session: RunLogSession, name: str, table: str, columns: str) -> None:
        """Create an index unless it exists."""
        session.run(f"CREATE INDEX IF NOT EXISTS {name} ON ${table} ({columns})")

    @contextmanager
    def migrating(self, session: RunLogSession) -> Iterator[None]:
        """Run the block in one transaction, in which no other process changes the tables."""
        session.run(self.begin_write)
        try:
            yield
            session.run("COMMIT")
        except BaseException:
            with suppress(*self.errors):
                self.roll_back(session)
            raise

    def roll_back(self, session: RunLogSession) -> None:
        """Roll the transaction back."""
        session.run("ROLLBACK")

    def version(self, session: RunLogSession) -> int:
        """Return the version of the tables; 0 if there are none."""
        if not self.has_table(session, "run_log_version"):
            return 0
        row = session.one("SELECT version FROM $run_log_version")
        return int(row[0]) if row else 0

    def set_version(self, session: RunLogSession, version: int) -> None:
        """Record the version of the tables."""
        session.run("CREATE TABLE IF NOT EXISTS $run_log_version (version INTEGER NOT NULL)")
        session.run("DELETE FROM $run_log_version")
        session.run("INSERT INTO $run_log_version (version) VALUES (?)", version)

    def has_table(self, session: RunLogSession, name: str) -> bool:
        """Return whether this run log table exists."""
        row = session.one(
            f"SELECT count(*) FROM information_schema.tables WHERE table_schema = {self.schema} AND table_name = ?",
            self.table_prefix + name,
        )
        return row is not None and bool(row[0])

    def has_column(self, session: RunLogSession, table: str, column: str) -> bool:
        """Return whether a run log table has this column."""
        row = session.one(
            f"SELECT count(*) FROM information_schema.columns "
            f"WHERE table_schema = {self.schema} AND table_name = ? AND column_name = ?",
            self.table_prefix + table,
            column,
        )
        return row is not None and bool(row[0])


@dataclass(frozen=True)
class RunLogSession:
    """An open connection that accepts the common SQL spelling."""

    raw: Any
    dialect: RunLogDialect

    def run(self, sql: str, *values: Any) -> int:
        """Execute a statement; return how many rows it changed."""
        return self.dialect.execute(self.raw, self._spelled(sql), values)[1]

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return all rows of a query."""
        return self.dialect.execute(self.raw, self._spelled(sql), values)[0]

    def one(self, sql: str, *values: Any) -> tuple[Any, ...] | None:
        """Return the first row of a query; None if there is none."""
        rows = self.rows(sql, *values)
        return rows[0] if rows else None

    def now(self) -> datetime:
        """Return the time of the store's clock."""
        return self.dialect.now(self)

    def put(self, table: str, *rows: Mapping[str, Any], key: Sequence[str]) -> None:
        """Insert rows, replacing those with the same key."""
        self._many(lambda columns: self.dialect.upsert(table, columns, key), rows)

    def add(self, table: str, row: Mapping[str, Any]) -> bool:
        """Insert a row unless its key exists; return whether it was inserted."""
        return self.run(self.dialect.add(table, list(row)), *row.values()) == 1

    def add_all(self, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Insert the rows whose keys do not exist."""
        self._many(lambda columns: self.dialect.add(table, columns), rows)

    def _many(self, sql: Any, rows: Sequence[Mapping[str, Any]]) -> None:
        if not rows:
            return
        text = self._spelled(sql(list(rows[0])))
        if len(rows) == 1:
            self.dialect.execute(self.raw, text, list(rows[0].values()))
        else:
            self.dialect.execute_many(self.raw, text, [list(row.values()) for row in rows])

    def _spelled(self, sql: str) -> str:
        return sql.replace("?", self.dialect.mark).replace("$", self.dialect.prefix)


def insert(table: str, columns: Sequence[str]) -> str:
    """Return an INSERT statement with value marks."""
    return f"INSERT INTO ${table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
