"""Translates SQLite errors to FlowError, by their message."""

from __future__ import annotations

import re
import sqlite3

from ematix_flow.foundation.errors import (
    BadValue,
    ConnectionFailed,
    ConstraintViolation,
    DuplicateKeys,
    FlowError,
    MissingColumn,
    MissingTable,
    NullViolation,
    PermissionDenied,
    RunFailed,
    SqlError,
    StorageFull,
    Unreachable,
)
from ematix_flow.foundation.redact import mask

_SQL = "try the query in the sqlite3 shell, or: flow validate NAME"
_WRITTEN_WRONG = (
    r"syntax error|incomplete input|no such function|wrong number of arguments|misuse of|ambiguous column|unrecognized token|"
    r"one statement at a time|do not have the same number|circular reference|no tables specified|parameters are not allowed"
)
_SIGNS: tuple[tuple[str, type[FlowError], str], ...] = (
    (r"is locked|database is busy", Unreachable, "another program is writing the database; run again when it is done"),
    (r"no such table", MissingTable, "check the table name; a schema is a prefix here: analytics.events is analytics_events"),
    (r"no such column|has no column named", MissingColumn, "check the column name"),
    (r"readonly database|read-only", PermissionDenied, "allow this user to write the file and its folder"),
    (r"disk is full|No space left", StorageFull, "free space on the disk and run again"),
    (r"not a database|malformed|unsupported file format", ConnectionFailed, "check path=: is this file a SQLite database?"),
    (r"unable to open|failed to open", ConnectionFailed, "check path= and the rights on the file and its folder"),
    (r"NOT NULL constraint", NullViolation, "declare the column `| None`, or give it a default(...)"),
    (r"UNIQUE constraint", DuplicateKeys, 'use mode="merge", or remove the rows that are already there'),
    (r"(?:CHECK|FOREIGN KEY) constraint", ConstraintViolation, "look at the row, and at the constraints of the table"),
    (r"blob too big", BadValue, "the source changed while it was planned, or a value is larger than SQLite allows; run again"),
    (r"integer overflow|datatype mismatch|malformed JSON", BadValue, "look at the value in the source"),
    (_WRITTEN_WRONG, SqlError, _SQL),
    (r"disk I/O error", Unreachable, "the disk did not answer; run again"),
)  # fmt: skip


def translate(exc: Exception) -> FlowError:
    """Return the FlowError for a sqlite3 or ADBC error."""
    text = mask(_message(exc))
    for pattern, kind, hint in _SIGNS:
        if re.search(pattern, text):
            return kind(f"{text} (SQLite)", hint=hint)
    if isinstance(exc, sqlite3.IntegrityError):  # an error raised by a trigger has a message of its own
        return ConstraintViolation(f"{text} (SQLite)", hint="look at the row, and at the triggers of the table")
    return RunFailed(f"{text} (SQLite)", hint=_SQL)


def _message(exc: Exception) -> str:
    """Return the message without the driver's prefixes and without the query it repeats."""
    text = (str(exc) or type(exc).__name__).split("\nquery:")[0].splitlines()[0]
    return re.sub(r"^(?:[A-Z_]+: )?(?:\[SQLite\] )?(?:Failed to (?:prepare|step|execute) query: )?", "", text)
