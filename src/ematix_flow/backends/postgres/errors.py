"""Translates PostgreSQL errors to FlowError, by SQLSTATE."""

from __future__ import annotations

import re

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
    TextTooLong,
    Unreachable,
)
from ematix_flow.foundation.redact import mask

_BY_STATE: dict[str, tuple[type[FlowError], str]] = {
    "28P01": (ConnectionFailed, "check user and password: flow connections check NAME"),
    "28000": (ConnectionFailed, "check user and pg_hba.conf: flow connections check NAME"),
    "3D000": (ConnectionFailed, "check the database name in the connection's url"),
    "42P01": (MissingTable, "check schema and table name"),
    "3F000": (MissingTable, "check the schema name"),
    "42703": (MissingColumn, "check the column name"),
    "42501": (PermissionDenied, "grant the right to this login, or use another one"),
    "53100": (StorageFull, "free space on the database server and run again"),
    "23502": (NullViolation, "declare the column `| None`, or give it a default(...)"),
    "22001": (TextTooLong, "declare a longer String, or cut with truncate(n)"),
    "23505": (DuplicateKeys, 'use mode="merge", or remove the rows that are already there'),
    "23503": (ConstraintViolation, "a foreign key of the target forbids it: load the other table first"),
    "P0001": (ConstraintViolation, "a trigger or function of the target refuses it: look at the row"),
    "22P05": (BadValue, "remove the character from the source"),
}
_BY_CLASS: dict[str, tuple[type[FlowError], str]] = {
    "08": (Unreachable, "is the server running, and the host and port right? flow connections check NAME"),
    "57": (Unreachable, "the server ended the session; run again"),
    "53": (Unreachable, "the server is short of resources; run again later"),
    "40": (Unreachable, "another transaction was in the way; run again"),
    "22": (BadValue, "look at the value in the source, or parse it with a normalizer"),
    "23": (ConstraintViolation, "look at the row, and at the constraints of the table"),
    "42": (SqlError, "try the query in psql, or: flow validate NAME"),
    "21": (SqlError, "try the query in psql, or: flow validate NAME"),
}


def translate(exc: Exception) -> FlowError:
    """Return the FlowError for a psycopg or ADBC error."""
    state = str(getattr(exc, "sqlstate", None) or "")
    text = mask(_message(exc))
    if not state:
        return _without_state(text)
    kind, hint = _BY_STATE.get(state) or _BY_CLASS.get(state[:2]) or (RunFailed, "see the server's log")
    return kind(f"{text} (PostgreSQL {state})", hint=_suggestion(exc) or hint)


def _message(exc: Exception) -> str:
    diagnostic = getattr(getattr(exc, "diag", None), "message_primary", None)
    if diagnostic:
        detail = getattr(exc.diag, "message_detail", None)  # type: ignore[attr-defined]
        return f"{diagnostic}: {detail}" if detail else str(diagnostic)
    text = str(exc)
    match = re.search(r"(?:ERROR|FATAL):\s+(.*?)(?:\n|$)", text)
    return match.group(1) if match else text.splitlines()[0] if text else type(exc).__name__


def _suggestion(exc: Exception) -> str | None:
    hint = getattr(getattr(exc, "diag", None), "message_hint", None)
    return str(hint) if hint and "column" in str(hint) else None


def _without_state(text: str) -> FlowError:
    if "password authentication failed" in text:
        return ConnectionFailed(text, hint="check user and password: flow connections check NAME")
    if "does not exist" in text and "database" in text:
        return ConnectionFailed(text, hint="check the database name in the connection's url")
    if "No space left" in text:
        return StorageFull(text, hint="free space on the database server and run again")
    if any(sign in text for sign in ("connection", "timeout", "resolve", "server closed")):
        return Unreachable(text, hint="is the server running, and the host and port right? flow connections check NAME")
    return RunFailed(text, hint="see the server's log")
