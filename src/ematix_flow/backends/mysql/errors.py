"""Translates errors of MySQL and MariaDB to FlowError, by error number."""

from __future__ import annotations

import re
from collections.abc import Iterable

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
    PlanError,
    RunFailed,
    SqlError,
    StorageFull,
    TextTooLong,
    Unreachable,
)
from ematix_flow.foundation.redact import mask

UNKNOWN_DATABASE = 1049
DUPLICATE_COLUMN = 1060
SYNTAX = 1064
_CHECK = "flow connections check NAME"
_Meaning = tuple[type[FlowError], str]


def _table(*rows: tuple[Iterable[int], type[FlowError], str]) -> dict[int, _Meaning]:
    return {number: (kind, hint) for numbers, kind, hint in rows for number in numbers}


_BY_NUMBER = _table(
    ((1045, 1130, 1251, 1698, 1862, 3118), ConnectionFailed,
     f"check user, password and the hosts this login may come from: {_CHECK}"),
    ((3159,), ConnectionFailed, "the server insists on TLS: give the connection ssl_ca, or ?ssl_mode=required in its url"),
    ((1040, 1203, 1226), Unreachable, "the server takes no more connections; run again later"),
    ((1053, 1077, 1152, 1158, 1159, 1160, 1161, 1184, 1317, 1927, 2002, 2003, 2005, 2006, 2013, 2055, 4031), Unreachable,
     f"is the server running, and the host and port right? {_CHECK}"),
    ((1205, 1213, 1020), Unreachable, "another transaction was in the way; run again"),
    ((1969, 3024), Unreachable, "the server's time limit for a statement ended it; run again or raise the limit"),
    ((1146, UNKNOWN_DATABASE, 1051), MissingTable, "check database and table name"),
    ((1054,), MissingColumn, "check the column name"),
    ((1044, 1142, 1143, 1227, 1370, 1410), PermissionDenied, "grant the right to this login, or use another one"),
    ((1290, 1792, 1836), PermissionDenied, "this server only reads; connect to the one that writes"),
    ((1052, 1055, 1056, SYNTAX, 1066, 1109, 1111, 1140, 1149, 1221, 1222, 1241, 1242, 1247, 1248, 1267, 1271, 1305, 1582),
     SqlError, "try the query in the mysql client, or: flow validate NAME"),
    ((1021, 1026, 1114, 3675), StorageFull, "free space on the database server and run again"),
    ((1048, 1263, 1364), NullViolation, "declare the column `| None`, or give it a default(...)"),
    ((1406,), TextTooLong, "declare a longer String, or cut with truncate(n)"),
    ((1062, 1586), DuplicateKeys, 'use mode="merge", or remove the rows that are already there'),
    ((1264, 1265, 1292, 1300, 1365, 1366, 1367, 1411, 1441, 1690, 3140, 3141, 3156), BadValue,
     "look at the value in the source, or parse it with a normalizer"),
    ((3819, 4025), ConstraintViolation, "look at the row, and at the constraints of the table"),
    ((1644,), ConstraintViolation, "a trigger of the target refuses it: look at the row"),
    ((1451, 1452), ConstraintViolation, "a foreign key of the target forbids it: load the other table first"),
    ((1118,), PlanError, "a row holds at most 65535 bytes beside Text and Bytes: declare long String columns as Text"),
    ((1071, 1170), PlanError, "keys hold at most 768 characters together: declare shorter String columns for them"),
    ((1425, 1426), PlanError, "MySQL keeps at most 30 decimal places (MariaDB 38): declare a smaller Numeric"),
    ((1059,), PlanError, "names have at most 64 characters: give the table or column a shorter one"),
    ((1153, 1301), RunFailed, "one row is larger than the server takes: raise max_allowed_packet there"),
)  # fmt: skip
_SERVER_SAYS = re.compile(r"ERROR (\d+) \(\w{5}\): (.*?)\s*\}?\)*$", re.DOTALL)
_NO_SPACE = re.compile(r"errno:? ?28\b|[Nn]o space left")
_NETWORK = ("IoError", "IO error", "CodecError", "Connection refused", "timed out", "DriverError", "Broken pipe")


def translate(exc: Exception) -> FlowError:
    """Return the FlowError for an error of PyMySQL or connectorx."""
    number, text = _code_and_message(exc)
    text = mask(text)
    if _NO_SPACE.search(text):
        return StorageFull(text, hint="free space there and run again")
    if number is None:
        if any(sign in text for sign in _NETWORK):
            return Unreachable(text, hint=f"is the server running, and the host and port right? {_CHECK}")
        return RunFailed(text, hint="see the server's log")
    kind, hint = _BY_NUMBER.get(number, (RunFailed, "see the server's log"))
    return kind(f"{text} (MySQL {number})", hint=hint)


def translate_login(exc: Exception) -> FlowError:
    """Return the FlowError for an error while connecting, where an unknown database is a fault of the connection."""
    number, text = _code_and_message(exc)
    if "cryptography" in text:
        return ConfigError("this login needs the package cryptography", hint='pip install "ematix-flow-spark[mysql]"')
    if number == UNKNOWN_DATABASE:
        return ConnectionFailed(
            f"{mask(text)} (MySQL {number})", hint="check the database name in the connection's url"
        )
    return translate(exc)


def number_of(exc: BaseException | None) -> int | None:
    """Return the server's error number of a driver error, None where it has none."""
    return _code_and_message(exc)[0] if isinstance(exc, Exception) else None


def _code_and_message(exc: Exception) -> tuple[int | None, str]:
    if len(exc.args) == 2 and isinstance(exc.args[0], int) and not isinstance(exc, OSError):
        number, text = exc.args
        if number == 0:  # PyMySQL reports a closed connection as 0
            return 2006, str(text) or "the connection to the server is gone"
        return number, str(text)
    match = _SERVER_SAYS.search(str(exc))
    if match:
        return int(match.group(1)), match.group(2)
    return None, str(exc) or type(exc).__name__
