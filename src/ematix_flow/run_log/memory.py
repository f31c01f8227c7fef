"""The run log in the memory of this process, lost when it ends."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from ematix_flow.run_log.sql import SqlRunLog
from ematix_flow.run_log.sqlite import SqliteRunLogDialect


class _MemoryDialect(SqliteRunLogDialect):
    """SQLite without a file; a forked child continues with its own copy."""

    per_process = False

    def __init__(self) -> None:
        super().__init__(Path(":memory:"))

    def connect(self) -> sqlite3.Connection:
        return sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)


class InMemoryRunLog(SqlRunLog):
    """A run log for tests and for single processes.

    >>> log = InMemoryRunLog()
    >>> log.claim("load_orders", "host:1:0", 60).acquired, log.claim("load_orders", "host:2:0", 60).acquired
    (True, False)
    """

    def __init__(self) -> None:
        super().__init__(_MemoryDialect())

    def close(self) -> None:
        """Do nothing: closing the connection would lose the data."""


class InMemoryRunHistory(InMemoryRunLog):
    """The run history alone, for tests."""

    def clear(self) -> None:
        """Delete every run."""
        with self._transaction() as sql:
            sql.run("DELETE FROM $run_records")

    def __len__(self) -> int:
        return self.list_runs(limit=1)[1]

    def __bool__(self) -> bool:  # an empty history is not a missing one
        return True
