"""SQLite sessions through Python's sqlite3 module; ADBC opens other files, or the same ones in other processes.

Two copies of the SQLite library in one process would release each other's locks on a file they share.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import struct
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ematix_flow.backends.sqlite.errors import translate
from ematix_flow.declare.connections import SQLiteConnection
from ematix_flow.families.sql.file_database import (
    file_of_memory_database,
    is_in_memory,
    make_folder_of,
    require_database,
)
from ematix_flow.families.sql.session import SqlSession
from ematix_flow.foundation.errors import ConfigError, Unsupported
from ematix_flow.sql.expressions.sqlite_functions import register

BUSY_SECONDS = 10
OLDEST = (3, 35, 0)
DECIMAL_ORDER = "flow_decimal_order"


def connect(connection: SQLiteConnection) -> SqlSession:
    """Return a session for interactive use; a missing file is created, a missing folder is not."""
    return _open(_uri(database_path(connection), "rwc"))


def connect_source(connection: SQLiteConnection) -> SqlSession:
    """Return a read-only session; raise ConnectionFailed where the database does not exist."""
    session = _open(source_uri(connection))
    session.execute("PRAGMA query_only = ON")
    return session


def connect_target(connection: SQLiteConnection) -> SqlSession:
    """Return a session that writes; a missing file or folder is created."""
    path = database_path(connection)
    make_folder_of(path)
    return _open(_uri(path, "rwc"))


def connect_file(path: Path) -> SqlSession:
    """Return a session with an internal database file, such as a stage."""
    return _open(_uri(path, "rwc"))


def database_path(connection: SQLiteConnection) -> Path:
    """Return the file of a connection; for a database in memory, a file that is deleted with this process."""
    path = connection.resolved().path
    if is_in_memory(path):
        return file_of_memory_database("sqlite", connection.name)
    if path.startswith("file:"):
        raise Unsupported(
            f"connection {connection.name!r} is {path}, and a pipeline opens its database more than once: "
            "every time it would find another, empty one",
            hint='give it a file: path="data/shop.db"',
        )
    return Path(os.path.realpath(path))


def source_uri(connection: SQLiteConnection) -> str:
    """Return the URI for opening a source: the file is never created, and may be read-only."""
    path = database_path(connection)
    require_database(connection, path, connect_target, title="SQLite")
    return _uri(path, "rw")


def require_adbc() -> None:
    """Raise ConfigError where ADBC, which transports the rows, is not installed."""
    if find_spec("adbc_driver_sqlite") is None:
        raise ConfigError("SQLite needs adbc-driver-sqlite", hint='pip install "ematix-flow-spark[sqlite]"')


def identity(connection: SQLiteConnection) -> tuple[str, ...]:
    """Return the real path of the file: equal paths mean the same database."""
    return ("sqlite", str(database_path(connection)))


def _uri(path: Path, mode: str) -> str:
    return f"file:{quote(str(path))}?mode={mode}"


def _open(target: str) -> SqlSession:
    if sqlite3.sqlite_version_info < OLDEST:
        wanted = ".".join(map(str, OLDEST))
        raise ConfigError(
            f"this Python has SQLite {sqlite3.sqlite_version}, {wanted} is needed", hint="use a newer Python"
        )
    try:
        raw = sqlite3.connect(target, uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        raw.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
    except sqlite3.Error as exc:
        raise translate(exc) from exc
    register(raw)
    raw.create_function("flow_sha256", 1, _sha256, deterministic=True)
    raw.create_function("flow_float32", 1, _float32, deterministic=True)
    raw.create_collation(DECIMAL_ORDER, _decimal_order)
    return SqlSession(raw, translate=translate, begin="BEGIN IMMEDIATE")


def _sha256(text: str | None) -> bytes | None:
    return None if text is None else hashlib.sha256(text.encode()).digest()


def _float32(value: Any) -> Any:
    return None if value is None else struct.unpack("f", struct.pack("f", value))[0]


def _decimal_order(left: str, right: str) -> int:
    a, b = Decimal(left), Decimal(right)
    return (a > b) - (a < b)
