"""The run log in one DuckDB file: opened only briefly, because DuckDB lets one process at a time open it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ematix_flow.foundation.errors import FlowError, Unreachable
from ematix_flow.run_log.drivers import require_driver, translate
from ematix_flow.run_log.sql import RunLogDialect, RunLogSession, SqlRunLog

MEMORY = ":memory:"
BUSY_SECONDS = 30.0
_LOCKED = "Could not set lock"
_locks: dict[str, threading.RLock] = {}


class _DuckDBDialect(RunLogDialect):
    begin_read = begin_write = "BEGIN TRANSACTION"

    def __init__(self, path: str) -> None:
        self._duckdb = require_driver("duckdb", package="duckdb", extra="runlog-duckdb")
        super().__init__(label=path, errors=(self._duckdb.Error, OSError))
        self._path = path
        self.keeps_open = path == MEMORY
        self.per_process = path != MEMORY
        if not self.keeps_open:
            # Two transactions of one process on one file would make each other fail.
            self.lock = _locks.setdefault(os.path.realpath(path), threading.RLock())

    def connect(self) -> Any:
        if self._path != MEMORY:
            Path(self._path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        until, pause = time.monotonic() + BUSY_SECONDS, 0.002
        while True:
            try:
                return self._duckdb.connect(self._path)
            except self._duckdb.IOException as error:
                if _LOCKED not in str(error) or time.monotonic() > until:
                    raise
                time.sleep(pause)
                pause = min(pause * 1.5, 0.05)

    def execute(self, raw: Any, sql: str, values: Sequence[Any]) -> tuple[list[tuple[Any, ...]], int]:
        cursor = raw.execute(sql, list(values))
        named = [item[0] for item in cursor.description or ()]
        rows = cursor.fetchall() if named else []
        return rows, int(rows[0][0]) if named == ["Count"] and rows else 0

    def execute_many(self, raw: Any, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        raw.executemany(sql, [list(row) for row in rows])

    def create_index(self, session: RunLogSession, name: str, table: str, columns: str) -> None:
        """Do nothing: columns are read fast without an index, and DuckDB cannot update indexed columns of a row."""

    def is_conflict(self, error: BaseException) -> bool:
        return isinstance(error, self._duckdb.TransactionException)

    def translate(self, error: BaseException) -> FlowError:
        if isinstance(error, self._duckdb.IOException) and _LOCKED in str(error):
            what = f"the run log {self.label} is busy: another process has it open"
            return Unreachable(what, hint="try again in a moment, or end the program that keeps it open")
        return translate(error, self.label)


class DuckDBRunLog(SqlRunLog):
    """A run log in the DuckDB file at `path`, created if missing; `:memory:` exists as long as this object."""

    def __init__(self, path: str | os.PathLike[str], *, create_tables: bool = True) -> None:
        self._path = str(path)
        super().__init__(_DuckDBDialect(self._path), create_tables=create_tables)

    @property
    def path(self) -> str:
        """Return the path of the file."""
        return self._path
