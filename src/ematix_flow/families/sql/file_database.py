"""Databases that are files: their paths, their errors, and what their sinks share.

A `:memory:` database is a file that exists until the process ends, because a pipeline opens it several times.
"""

from __future__ import annotations

import atexit
import hashlib
import shutil
import tempfile
from collections.abc import Callable
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from ematix_flow.families.sql.session import SqlSession
from ematix_flow.families.sql.sink import SqlSink
from ematix_flow.foundation.errors import ConnectionFailed

MEMORY = ":memory:"


def is_in_memory(path: str) -> bool:
    """Return whether the path names a database without a file."""
    return path.startswith(MEMORY)


@cache
def file_of_memory_database(kind: str, name: str) -> Path:
    """Return the file that holds this connection's `:memory:` database; it is deleted when the process exits.

    Every session of the connection sees the same tables, which the driver's own in-memory database cannot offer.
    """
    return Path(_folder()) / f"{kind}_{''.join(sign if sign.isalnum() else '_' for sign in name)}.db"


@lru_cache(maxsize=1)
def _folder() -> str:
    folder = tempfile.mkdtemp(prefix="ematix-flow-memory-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def make_folder_of(path: Path) -> None:
    """Create the folder of a database file; raise ConnectionFailed where that is impossible."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise ConnectionFailed(
            f"the folder of {path} cannot be made: {exc.strerror}", hint="check path= and its rights"
        ) from exc


def require_database(connection: Any, path: Path, create: Callable[[Any], SqlSession], *, title: str) -> None:
    """Raise ConnectionFailed where the database file does not exist; one in memory is created, and is empty."""
    if not path.exists() and is_in_memory(connection.resolved().path):
        with create(connection) as session:
            session.execute("SELECT 1")
    if not path.exists():
        raise ConnectionFailed(
            f"there is no {title} database at {path}", hint=f"check path= of connection {connection.name!r}"
        )


class FileDatabaseSink(SqlSink):
    """A sink of a database file, whose stages belong to an owner named after the file."""

    def __init__(self, connection: Any, path: Path, *, kind: str) -> None:
        self._connection, self._path = connection, path
        self._owner = f"{kind}-{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"

    def has_database(self) -> bool:
        return self._path.exists()
