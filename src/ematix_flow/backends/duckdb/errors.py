"""Translates DuckDB errors to FlowError, by exception class and message."""

from __future__ import annotations

import re

from ematix_flow.foundation.errors import (
    BadValue,
    ConfigError,
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

_SQL = "try the query in the duckdb shell, or: flow validate NAME"
_SIGNS: tuple[tuple[str, type[FlowError], str], ...] = (
    (r"Could not set lock|Conflicting lock", Unreachable,
     "another process has the file open, and DuckDB lets only one write; close it and run again"),
    (r"Unique file handle conflict", Unreachable, "this process is about to close the file; run again"),
    (r"different configuration", Unreachable, "this process has the file open in another mode; close that connection"),
    (r"No space left|disk quota", StorageFull, "free space on the disk and run again"),
    (r"Permission denied|read-only mode|Read-only file system", PermissionDenied,
     "allow this user to write the file and its folder"),
    (r"not a valid DuckDB database|Could not deserialize|newer version of DuckDB|unknown database version|checksum", ConnectionFailed,
     "check path=: is this a DuckDB file, written by this version of DuckDB or an older one?"),
    (r"database does not exist|Cannot open file|Cannot open database", ConnectionFailed, "check path= and its folder"),
    (r"Required module 'pytz'", ConfigError, 'pip install "ematix-flow-spark[duckdb]"'),
    (r"Out of Memory", RunFailed, "the load needs more memory than DuckDB was given; load it in smaller parts"),
    (r"Duplicate key|violates (?:primary key|unique) constraint", DuplicateKeys,
     'use mode="merge", or remove the rows that are already there'),
    (r"NOT NULL constraint failed", NullViolation, "declare the column `| None`, or give it a default(...)"),
    (r"(?:Scalar|Aggregate|Table) Function with name", SqlError, _SQL),
    (r"(?:Table|View|Schema) with name .* does not exist|Referenced table", MissingTable, "check schema and table name"),
    (r"Referenced column|does not have a column", MissingColumn, "check the column name"),
    (r"Conflict on|TransactionContext Error|write-write conflict", Unreachable, "another transaction was in the way; run again"),
)  # fmt: skip
_BY_CLASS: dict[str, tuple[type[FlowError], str]] = {
    "ConstraintException": (ConstraintViolation, "look at the row, and at the constraints of the table"),
    "ConversionException": (BadValue, "look at the value in the source, or parse it with a normalizer"),
    "OutOfRangeException": (BadValue, "look at the value in the source"),
    "InvalidInputException": (BadValue, "look at the value in the source"),
    "ParserException": (SqlError, _SQL),
    "BinderException": (SqlError, _SQL),
    "CatalogException": (SqlError, _SQL),
    "SyntaxException": (SqlError, _SQL),
    "IOException": (ConnectionFailed, "check path= and the rights on the file and its folder"),
}


def translate(exc: Exception) -> FlowError:
    """Return the FlowError for a duckdb error."""
    whole = str(exc)
    text = mask(_sentence(whole) or type(exc).__name__)
    near = re.search(r"(Did you mean \"?[^\n?]+\??|Candidate bindings: [^\n]+)", whole)
    for pattern, kind, hint in _SIGNS:
        if re.search(pattern, whole):
            return kind(
                f"{text} (DuckDB)", hint=mask(near.group(1)) if near and kind in (MissingTable, MissingColumn) else hint
            )
    kind, hint = _BY_CLASS.get(type(exc).__name__, (RunFailed, _SQL))
    return kind(f"{text} (DuckDB)", hint=hint)


def _sentence(text: str) -> str:
    lines = text.splitlines()
    first = lines[0] if lines else ""
    return re.sub(r"^(?:[A-Z][A-Za-z]+ )+Error: ", "", first).split(" See also ")[0]
