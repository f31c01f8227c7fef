"""Sessions with the file, and its errors."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb

from ematix_flow.families.sql.session import SqlSession
from ematix_flow.foundation import errors
from outside_db.connection import OutsideConnection

PATIENCE_SECONDS = 8.0
_MEANINGS: tuple[tuple[str, type[errors.FlowError], str], ...] = (
    (r"lock|file handle conflict|different configuration|Conflict on|write-write", errors.Unreachable, "run again"),
    (r"Duplicate key|violates (?:primary key|unique)", errors.DuplicateKeys, 'use mode="merge"'),
    (r"NOT NULL constraint", errors.NullViolation, "declare the column `| None`"),
    (r"(?:Table|View|Schema) with name .* does not exist", errors.MissingTable, "check the table's name"),
    (r"Referenced column|does not have a column", errors.MissingColumn, "check the column's name"),
    (r"^(?:Conversion|Out of Range|Invalid Input) Error", errors.BadValue, "look at the value in the source"),
    (r"^(?:Parser|Binder|Catalog) Error", errors.SqlError, "look at the statement"),
    (r"^IO Error", errors.ConnectionFailed, "check file= and its folder"),
)


class OutsideSession(SqlSession):
    """A session whose statements return the number of rows they changed."""

    def execute(self, sql: str) -> int:
        with self._cursor(sql) as cursor:
            names = [item[0] for item in cursor.description or ()]
            row = cursor.fetchone() if names == ["Count"] else None
            return int(row[0]) if row else 0

    @contextmanager
    def _cursor(self, sql: str) -> Iterator[Any]:
        try:
            yield self.raw.execute(sql)
        except duckdb.Error as exc:
            raise translate(exc) from exc


def place(connection: OutsideConnection) -> Path:
    """Return the file."""
    return Path(connection.resolved().file).absolute()


def connect(connection: OutsideConnection) -> OutsideSession:
    """Return a session; a missing file is made, and a process that has it open is waited for."""
    path, deadline = place(connection), time.monotonic() + PATIENCE_SECONDS
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise errors.ConnectionFailed(f"the folder of {path} cannot be made", hint="check file=") from exc
    while True:
        try:
            session = OutsideSession(duckdb.connect(path), translate=translate)
            session.execute("SET TimeZone = 'UTC'")
            return session
        except duckdb.Error as exc:
            error = translate(exc)
            if not isinstance(error, errors.Unreachable) or time.monotonic() > deadline:
                raise error from exc
            time.sleep(0.1)


def connect_existing(connection: OutsideConnection) -> OutsideSession:
    """Return a session; raise ConnectionFailed where there is no file."""
    if not place(connection).exists():
        raise errors.ConnectionFailed(f"there is no database at {place(connection)}", hint="check file=")
    return connect(connection)


def translate(exc: Exception) -> errors.FlowError:
    """Return the FlowError for an error of the driver."""
    text = str(exc)
    said = f"{text.splitlines()[0]} (Outside)" if text else type(exc).__name__
    kind, hint = next(
        ((kind, hint) for pattern, kind, hint in _MEANINGS if re.search(pattern, text)),
        (errors.RunFailed, "look at the statement"),
    )
    return kind(said, hint=hint)
