"""The run log in one SQLite file, shared by any number of processes."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ematix_flow.foundation.errors import FlowError
from ematix_flow.run_log.drivers import translate
from ematix_flow.run_log.sql import RunLogDialect, RunLogSession, SqlRunLog

BUSY_SECONDS = 30.0


class SqliteRunLogDialect(RunLogDialect):
    """SQLite as a file."""

    begin_write = "BEGIN IMMEDIATE"

    def __init__(self, path: Path) -> None:
        super().__init__(label=str(path), errors=(sqlite3.Error, OSError))
        self.path = path

    def connect(self) -> sqlite3.Connection:
        """Return a connection; retry here, as SQLite does not wait while another process switches a new file to WAL."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        until = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                return self._connect()
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > until:
                    raise
                time.sleep(0.02)

    def execute(self, raw: Any, sql: str, values: Sequence[Any]) -> tuple[list[tuple[Any, ...]], int]:
        cursor = raw.execute(sql, values)
        return cursor.fetchall(), cursor.rowcount

    def execute_many(self, raw: Any, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        raw.executemany(sql, rows)

    def translate(self, error: BaseException) -> FlowError:
        return translate(error, self.label)

    def roll_back(self, session: RunLogSession) -> None:
        if session.raw.in_transaction:
            session.run("ROLLBACK")

    def version(self, session: RunLogSession) -> int:
        row = session.one("PRAGMA user_version")
        return int(row[0]) if row else 0

    def has_column(self, session: RunLogSession, table: str, column: str) -> bool:
        return session.one("SELECT 1 FROM pragma_table_info(?) WHERE name = ?", table, column) is not None

    def set_version(self, session: RunLogSession, version: int) -> None:
        session.run(f"PRAGMA user_version = {version}")

    def _connect(self) -> sqlite3.Connection:
        # Threads share the connection under the dialect's lock.
        sql = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            # The setting is stored in the file; readers and a writer then do not block each other.
            if sql.execute("PRAGMA user_version").fetchone() == (0,):
                sql.execute("PRAGMA journal_mode = WAL")
            # In WAL mode this keeps the file consistent after a crash; only the last commits before a power failure may
            # be missing.
            sql.execute("PRAGMA synchronous = NORMAL")
        except BaseException:
            sql.close()
            raise
        return sql


class SqliteRunLog(SqlRunLog):
    """A run log in the file at `path`, created if missing.

    >>> import tempfile
    >>> log = SqliteRunLog(Path(tempfile.mkdtemp()) / "run_log.db")
    >>> log.claim("load_orders", "host:1:0", 60).acquired
    True
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        super().__init__(SqliteRunLogDialect(self._path))

    @property
    def path(self) -> Path:
        """Return the path of the file."""
        return self._path
