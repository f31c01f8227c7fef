"""The run log in this process's memory: gone when it ends."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from ematix_flow.runlog.sql import SqlRunLog
from ematix_flow.runlog.sqlite import SqliteDialect


class _MemoryDialect(SqliteDialect):
    """SQLite without a file; a forked child goes on with its copy."""

    per_process = False

    def __init__(self) -> None:
        super().__init__(Path(":memory:"))

    def connect(self) -> sqlite3.Connection:
        return sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)


class InMemoryRunLog(SqlRunLog):
    """A run log for tests and for one process.

    >>> log = InMemoryRunLog()
    >>> log.claim("load_orders", "host:1:0", 60).acquired, log.claim("load_orders", "host:2:0", 60).acquired
    (True, False)
    """

    def __init__(self) -> None:
        super().__init__(_MemoryDialect())

    def close(self) -> None:
        """Nothing is open that could be closed; what is known stays known."""


class InMemoryRunHistory(InMemoryRunLog):
    """The history alone, as tests use it."""

    def clear(self) -> None:
        """Forget every run."""
        with self._transaction() as sql:
            sql.run("DELETE FROM $run_records")

    def __len__(self) -> int:
        return self.list_runs(limit=1)[1]

    def __bool__(self) -> bool:  # an empty one is there all the same
        return True
