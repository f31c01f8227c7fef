"""Sessions with DuckDB: opened late, closed early, because one process at a time may write the file."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ematix_flow.backends.duckdb.errors import translate
from ematix_flow.families.parquet_stage import scratch_dir
from ematix_flow.families.sql.in_memory import file_of, is_in_memory
from ematix_flow.families.sql.session import SqlSession
from ematix_flow.foundation.errors import ConfigError, ConnectionFailed, FlowError, Unreachable

if TYPE_CHECKING:
    from ematix_flow.declare.connections import DuckDBConnection

LOCK_SECONDS = 8.0
MEMORY_LIMIT = "1GB"
MOST_THREADS = 4


class DuckdbSession(SqlSession):
    """A connection whose statements answer with the number of rows they changed."""

    def __init__(self, raw: Any, open_until: ExitStack) -> None:
        super().__init__(raw, translate=translate)
        self._open_until = open_until

    def execute(self, sql: str) -> int:
        """Run one statement; rows affected."""
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
        """End the session and let go of the file."""
        self.raw.close()
        self._open_until.close()


def connect(connection: DuckDBConnection) -> DuckdbSession:
    """A session for people: the file is made when it is not there, its folder is not."""
    return _session(str(database_path(connection)))


def connect_source(connection: DuckDBConnection) -> DuckdbSession:
    """A session that only reads, within bounded memory; the database must be there."""
    path = database_path(connection)
    if not path.exists() and is_in_memory(connection.resolved().path):
        with connect_target(connection) as session:  # it is there from the start, and empty
            session.execute("SELECT 1")
    if not path.exists():
        raise ConnectionFailed(
            f"there is no DuckDB database at {path}", hint=f"check path= of connection {connection.name!r}"
        )
    return _bounded(_session(str(path), read_only=True))


def connect_target(connection: DuckDBConnection) -> DuckdbSession:
    """A session that writes, within bounded memory; file and folder are made when they are not there."""
    path = database_path(connection)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise ConnectionFailed(
            f"the folder of {path} cannot be made: {exc.strerror}", hint="check path= and its rights"
        ) from exc
    return _bounded(_session(str(path)))


def database_path(connection: DuckDBConnection) -> Path:
    """The file of a connection; for one in memory a file that goes with this process."""
    path = connection.resolved().path
    return file_of("duckdb", connection.name) if is_in_memory(path) else Path(os.path.realpath(path))


def catalog_name(path: Path) -> str:
    """The name DuckDB gives a database file: its own, up to the first dot."""
    return path.name.split(".")[0]


def identity(connection: DuckDBConnection) -> tuple[str, ...]:
    """The real path: the same means the same database."""
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
    with suppress(FlowError):  # a connection of the person's own in this process may use another folder already
        session.execute(f"SET temp_directory = '{str(folder).replace(chr(39), chr(39) * 2)}'")
    return session


def _open(path: str, read_only: bool) -> Any:
    """Wait for a lock a little: others open late and close early, too."""
    try:
        import duckdb
    except ImportError as exc:
        raise ConfigError("DuckDB needs duckdb", hint='pip install "ematix-flow-spark[duckdb]"') from exc
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
