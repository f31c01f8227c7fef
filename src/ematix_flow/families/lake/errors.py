"""Translates errors of Spark, Delta and the file system into FlowErrors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from ematix_flow.dataplane.lost_engine import lost_engine_error
from ematix_flow.dataplane.sail_errors import recognise_sail_error
from ematix_flow.dataplane.spark_session import is_active_session_sail
from ematix_flow.dataplane.task_errors import carried_error_in
from ematix_flow.foundation.errors import (
    BadValue,
    ConnectionFailed,
    ConstraintViolation,
    DriftError,
    DuplicateKeys,
    FlowError,
    LeaseHeld,
    MissingColumn,
    MissingTable,
    NullViolation,
    PermissionDenied,
    RunFailed,
    SqlError,
    StorageFull,
    Unreachable,
    Unsupported,
)
from ematix_flow.foundation.names import did_you_mean
from ematix_flow.foundation.redact import mask

_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*)\]\s*(.*?)(?:\s*SQLSTATE: \w+|\n|$)", re.DOTALL)
_NAME = re.compile(r"`([^`]+)`")
_OVERTAKEN = ("RemoteFileChangedException", "Status Code: 412", "PreconditionFailed")
_VALUE = "look at the value in the source, or parse it with a normalizer"
_AGAIN = "another writer changed the table meanwhile: run it again"
_KNOWN: tuple[tuple[tuple[str, ...], type[FlowError], str], ...] = (
    (("FIELD_NOT_FOUND",), MissingColumn, "check the column name"),
    (("TABLE_OR_VIEW_NOT_FOUND",), MissingTable, "check the table name"),
    (("PATH_NOT_FOUND", "DELTA_MISSING_DELTA_TABLE", "DELTA_TABLE_NOT_FOUND", "DELTA_PATH_DOES_NOT_EXIST"), MissingTable,
     "check the table name and the connection's path"),
    (("DELTA_CANNOT_CREATE_LOG_PATH",), ConnectionFailed, "check the connection's path: no folder can be made there"),
    (("DELTA_VIOLATE_CONSTRAINT",), ConstraintViolation, "look at the row, and at the constraints of the table"),
    (("DELTA_NOT_NULL_CONSTRAINT_VIOLATED",), NullViolation, "declare the column `| None`, or give it a default(...)"),
    (("DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE",), DuplicateKeys, "the table holds a key twice: remove one"),
    (("DELTA_CONCURRENT", "DELTA_METADATA_CHANGED", "DELTA_PROTOCOL_CHANGED"), LeaseHeld, _AGAIN),
    (("DELTA_INVALID_CHARACTERS_IN_COLUMN_NAME",), Unsupported, "rename the column: letters, digits and _ are always fine"),
    (("DELTA_UNSUPPORTED", "NOT_SUPPORTED_CHANGE_COLUMN"), Unsupported, "copy the table by hand, or declare what is there"),
    (("DELTA_SCHEMA_CHANGED",), RunFailed, "start the stream again: it goes on with the table's new columns"),
    (("DELTA_SOURCE_",), Unsupported, "rows of the table were changed or deleted: read its change feed (changes:NAME)"),
    (("DELTA_FAILED_TO_MERGE_FIELDS", "DELTA_SCHEMA"), DriftError, "compare the table with its declaration: flow preview NAME"),
    (("CANNOT_PARSE", "CAST_"), BadValue, _VALUE),
    (("NUMERIC_VALUE_OUT_OF_RANGE",), BadValue, "look at the value in the source, or declare a larger type"),
    (("MALFORMED_",), BadValue, "look at that record in the file; short rows are taken with truncated_rows_ok=True"),
    (("FAILED_READ_FILE",), BadValue, "look at that file: it does not have the connection's format"),
    (("UNABLE_TO_INFER_SCHEMA",), MissingTable, "the folder holds no data yet"),
    (("AMBIGUOUS_REFERENCE",), SqlError, "name the table with the column"),
    (("PARSE_SYNTAX_ERROR", "DATATYPE_MISMATCH", "UNRESOLVED_ROUTINE", "MISSING_GROUP_BY", "MISSING_AGGREGATION"), SqlError,
     "lakes and files are queried in Spark SQL"),
)  # fmt: skip


def translate(exc: Exception) -> FlowError | None:
    """Return the FlowError for an exception, None for an unknown error."""
    text = str(exc)
    carried = carried_error_in(text)
    if carried is not None:
        return carried
    lost = lost_engine_error(exc)
    if lost is not None:
        return lost
    if "No space left on device" in text:
        return StorageFull("no space left on the lake's disk", hint="free space on that disk and run again")
    bucket = _bucket_error(text)
    if bucket is not None:
        return bucket
    if "Permission denied" in text or "AccessControlException" in text:
        match = re.search(r"(/\S+)[^\n]*Permission denied", text)
        where = f" for {match.group(1).rstrip(':')}" if match else ""
        return PermissionDenied(f"permission denied{where}", hint="give this user the right to read and write there")
    for condition, message in _CONDITION.findall(text):
        if condition.startswith("UNRESOLVED_COLUMN"):
            return _missing_column(message)
        for starts, kind, hint in _KNOWN:
            if condition.startswith(starts):
                return kind(mask(" ".join(message.split())) or condition, hint=hint)
    return recognise_sail_error(text) if is_active_session_sail() else None


@contextmanager
def translated_errors(what: str) -> Iterator[None]:
    """Translate every exception raised inside into a FlowError; an OSError is passed on unchanged."""
    try:
        yield
    except FlowError:
        raise
    except OSError:
        raise
    except Exception as exc:
        raise translate(exc) or RunFailed(f"{what} failed: {_first_line(exc)}", hint="see the log of this run") from exc


@contextmanager
def recognised_errors() -> Iterator[None]:
    """Translate known exceptions raised inside; pass others on unchanged, because they may belong to the source."""
    try:
        yield
    except FlowError:
        raise
    except Exception as exc:
        known = translate(exc)
        if known is None:
            raise
        raise known from exc


def _bucket_error(message: str) -> FlowError | None:
    """Return the FlowError for a message of Hadoop's S3A, None for an unknown one."""
    if "s3a" not in message.lower():
        return None
    if "S3AFileSystem not found" in message:
        return RunFailed(
            "this Spark session cannot read S3",
            hint="start it with ematix_flow.spark_session(), or with the hadoop-aws jar of its Hadoop",
        )
    if any(word in message for word in _OVERTAKEN):
        return LeaseHeld("another writer committed to the table meanwhile; nothing was loaded", hint="run it again")
    if "Status Code: 403" in message or "java.nio.file.AccessDeniedException" in message:
        return PermissionDenied(
            "the bucket refused this login", hint="check the login of the connection and its rights"
        )
    if "NoSuchBucket" in message or "UnknownStoreException" in message:
        return ConnectionFailed("there is no such bucket", hint="check the connection's bucket and endpoint")
    if "Unable to execute HTTP request" in message or "AWSClientIOException" in message:
        return Unreachable("the bucket cannot be reached", hint="check the connection's endpoint and the network")
    return None


def _missing_column(message: str) -> MissingColumn:
    wanted, _, near = message.partition("Did you mean")
    name = ".".join(_NAME.findall(wanted)) or "?"
    offered = [quoted.split(".")[-1].strip("`") for quoted in re.findall(r"`[^,\]]+`", near)]
    hint = did_you_mean(name.split(".")[-1], offered) if offered else "check the column name"
    return MissingColumn(f"column {name} does not exist", hint=hint, column=name)


def _first_line(exc: Exception) -> str:
    lines = [line.strip() for line in str(exc).splitlines() if line.strip()]
    first = (
        lines[1]
        if len(lines) > 1 and lines[0].startswith("An error occurred while calling")
        else lines[0]
        if lines
        else ""
    )
    return mask(first.removeprefix(": ")[:300]) or type(exc).__name__
