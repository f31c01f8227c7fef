"""DuckDB sessions: opened late and closed early, because only one process at a time may write the file."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from ematix_flow.backends.duckdb.errors import translate
from ematix_flow.dataplane.parquet_stage import scratch_dir
from ematix_flow.declare.connections import DuckDBConnection
from ematix_flow.families.sql.file_database import (
    file_of_memory_database,
    is_in_memory,
    make_folder_of,
    require_database,
)
from ematix_flow.families.sql.session import SqlSession
from ematix_flow.foundation.drivers import require_driver
from ematix_flow.foundation.errors import FlowError, Unreachable

LOCK_SECONDS = 8.0
MEMORY_LIMIT = "1GB"
MOST_THREADS = 4


class DuckdbSession(SqlSession):
    """A connection whose statements return the number of rows they changed."""

    def __init__(self, raw: Any, open_until: ExitStack) -> None:
        super().__init__(raw, translate=translate)
        self._open_until = open_until

    def execute(self, sql: str) -> int:
        """Execute one statement; return the rows affected."""
        with self._cursor(sql) as cursor:
            named = [item[0] for item in cursor.description or ()]
            answer = cursor.fetchone() if named == ["Count"] else None
            return int(answer[0]) if answer else 0

    @contextmanager
    def _cursor(self, sql: str) -> Iterator[Any]:
        # DuckDB's cursor() is another connection: it would see neither this transaction nor its temporary tables.
        try:
            yield self.raw.execute(sql)
        except FlowError:
            raise
        except Exception as exc:
            raise translate(exc) from exc

    def close(self) -> None:
        """Close the connection, which releases the file, and delete the scratch folder."""
        self.raw.close()
        self._open_until.close()


def connect(connection: DuckDBConnection) -> DuckdbSession:
    """Return a session for interactive use; a missing file is created, a missing folder is not."""
    return _session(str(database_path(connection)))


def connect_source(connection: DuckDBConnection) -> DuckdbSession:
    """Return a read-only session with bounded memory; raise ConnectionFailed where the database does not exist."""
    path = database_path(connection)
    require_database(connection, path, connect_target, title="DuckDB")
    return _bounded(_session(str(path), read_only=True))


def connect_target(connection: DuckDBConnection) -> DuckdbSession:
    """Return a session that writes, with bounded memory; a missing file or folder is created."""
    path = database_path(connection)
    make_folder_of(path)
    return _bounded(_session(str(path)))


def database_path(connection: DuckDBConnection) -> Path:
    """Return the file of a connection; for a database in memory, a file that is deleted with this process."""
    path = connection.resolved().path
    return file_of_memory_database("duckdb", connection.name) if is_in_memory(path) else Path(os.path.realpath(path))


def catalog_name(path: Path) -> str:
    """Return DuckDB's name for a database file: the file name up to the first dot."""
    return path.name.split(".")[0]


def identity(connection: DuckDBConnection) -> tuple[str, ...]:
    """Return the real path of the file: equal paths mean the same database."""
    return ("duckdb", str(database_path(connection)))


def _session(path: str, *, read_only: bool = False) -> DuckdbSession:
    session = DuckdbSession(_open(path, read_only), ExitStack())
    session.execute("SET TimeZone = 'UTC'")
    return session


def _bounded(session: DuckdbSession) -> DuckdbSession:
    folder = scratch_dir(session._open_until)
    threads = min(MOST_THREADS, os.cpu_count() or 1)
    session.execute(f"SET memory_limit = '{MEMORY_LIMIT}'")
    session.execute(f"SET threads = {threads}")
    session.execute("SET preserve_insertion_order = false")
    with suppress(FlowError):  # a connection of the user in this process may have set another folder already
        session.execute(f"SET temp_directory = '{str(folder).replace(chr(39), chr(39) * 2)}'")
    return session


def _open(path: str, read_only: bool) -> Any:
    """Open the file, waiting up to `LOCK_SECONDS` for another process to close it."""
    duckdb = require_driver("duckdb", needed_by="DuckDB", package="duckdb", extra="duckdb")
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            return duckdb.connect(path, read_only=read_only)
        except duckdb.ConnectionException as exc:
            if not read_only:
                raise translate(exc) from exc
            read_only = False  # this process has it open for writing already, and that connection can be shared
        except duckdb.Error as exc:
            error = translate(exc)
            if not isinstance(error, Unreachable) or time.monotonic() > deadline:
                raise error from exc
            time.sleep(0.1)
