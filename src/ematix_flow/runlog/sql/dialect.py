"""How one SQL database differs from the others."""

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


class Dialect(ABC):
    """A database: how to open it, how it spells what differs, what its errors mean.

    Statements are written once, with `?` for values and `$` before the name of a table.
    """

    mark = "?"
    prefix = ""
    """What `$` stands for: a schema, a first part of every name, or nothing."""
    schema = "'main'"
    table_prefix = ""
    key_type = "TEXT"
    word_type = "TEXT"
    text_type = "TEXT"
    row_lock = ""
    """Added to a SELECT, it makes others wait who want to change the row."""
    begin_read = "BEGIN"
    begin_write = "BEGIN"
    has_clock = False
    """Whether the database is a machine of its own, whose clock all workers share."""
    keeps_open = True
    per_process = True
    """Whether a forked child needs a connection of its own."""
    may_vanish = False
    """Whether the other end may have closed a connection that lay idle."""

    def __init__(self, *, label: str, errors: tuple[type[BaseException], ...]) -> None:
        self.label = label
        self.errors = errors
        self.lock = threading.RLock()

    @abstractmethod
    def connect(self) -> Any:
        """An open connection without a transaction."""

    @abstractmethod
    def execute(self, raw: Any, sql: str, values: Sequence[Any]) -> tuple[list[tuple[Any, ...]], int]:
        """The rows of a statement, and how many it changed."""

    @abstractmethod
    def execute_many(self, raw: Any, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """The same statement for many rows."""

    @abstractmethod
    def translate(self, error: BaseException) -> FlowError:
        """What the driver's error means here."""

    def is_conflict(self, error: BaseException) -> bool:
        """Whether the transaction was given up in favour of another one, and may simply be tried again."""
        return False

    def now(self, session: Session) -> datetime:
        """The store's clock where it has one; leases are judged by it."""
        return clock_now()

    def upsert(self, table: str, columns: Sequence[str], keys: Sequence[str]) -> str:
        """Insert a row, or replace the one with the same key."""
        changed = ", ".join(f"{column} = excluded.{column}" for column in columns if column not in keys)
        return f"{insert(table, columns)} ON CONFLICT ({', '.join(keys)}) DO UPDATE SET {changed}"

    def add(self, table: str, columns: Sequence[str]) -> str:
        """Insert a row unless its key is there."""
        return f"{insert(table, columns)} ON CONFLICT DO NOTHING"

    def create_index(self, session: Session, name: str, table: str, columns: str) -> None:
        """Make an index unless it is there."""
        session.run(f"CREATE INDEX IF NOT EXISTS {name} ON ${table} ({columns})")

    @contextmanager
    def migrating(self, session: Session) -> Iterator[None]:
        """While the block runs, nobody else changes the tables; all of it happens, or nothing."""
        session.run(self.begin_write)
        try:
            yield
            session.run("COMMIT")
        except BaseException:
            with suppress(*self.errors):
                self.roll_back(session)
            raise

    def roll_back(self, session: Session) -> None:
        """Give the transaction up."""
        session.run("ROLLBACK")

    def version(self, session: Session) -> int:
        """The version of the tables; 0 when there are none."""
        if not self.has_table(session, "run_log_version"):
            return 0
        found = session.one("SELECT version FROM $run_log_version")
        return int(found[0]) if found else 0

    def set_version(self, session: Session, version: int) -> None:
        """Note which version the tables have now."""
        session.run("CREATE TABLE IF NOT EXISTS $run_log_version (version INTEGER NOT NULL)")
        session.run("DELETE FROM $run_log_version")
        session.run("INSERT INTO $run_log_version (version) VALUES (?)", version)

    def has_table(self, session: Session, name: str) -> bool:
        """Whether this table of ours is there."""
        found = session.one(
            f"SELECT count(*) FROM information_schema.tables WHERE table_schema = {self.schema} AND table_name = ?",
            self.table_prefix + name,
        )
        return found is not None and bool(found[0])

    def has_column(self, session: Session, table: str, column: str) -> bool:
        """Whether a table of ours has this column."""
        found = session.one(
            f"SELECT count(*) FROM information_schema.columns "
            f"WHERE table_schema = {self.schema} AND table_name = ? AND column_name = ?",
            self.table_prefix + table,
            column,
        )
        return found is not None and bool(found[0])


@dataclass(frozen=True)
class Session:
    """An open connection that speaks the common spelling."""

    raw: Any
    dialect: Dialect

    def run(self, sql: str, *values: Any) -> int:
        """Run a statement; how many rows it changed."""
        return self.dialect.execute(self.raw, self._spelled(sql), values)[1]

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """All rows of a query."""
        return self.dialect.execute(self.raw, self._spelled(sql), values)[0]

    def one(self, sql: str, *values: Any) -> tuple[Any, ...] | None:
        """The first row of a query."""
        found = self.rows(sql, *values)
        return found[0] if found else None

    def now(self) -> datetime:
        """The store's clock."""
        return self.dialect.now(self)

    def put(self, table: str, *rows: Mapping[str, Any], key: Sequence[str]) -> None:
        """Insert rows, replacing those with the same key."""
        self._many(lambda columns: self.dialect.upsert(table, columns, key), rows)

    def add(self, table: str, row: Mapping[str, Any]) -> bool:
        """Insert a row unless its key is there; whether it was inserted."""
        return self.run(self.dialect.add(table, list(row)), *row.values()) == 1

    def add_all(self, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Insert those rows whose keys are not there."""
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
    """The beginning of every INSERT."""
    return f"INSERT INTO ${table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
