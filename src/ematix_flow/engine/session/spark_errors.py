"""Translation of Spark's exceptions into this package's errors."""

from __future__ import annotations

import re

from ematix_flow.dataplane.lost_engine import lost_engine_error
from ematix_flow.dataplane.sail_errors import recognise_sail_error
from ematix_flow.dataplane.spark_session import is_active_session_sail
from ematix_flow.dataplane.task_errors import BAD_VALUE, NO_SCALE, NO_UNIT, carried_error_in
from ematix_flow.foundation.errors import (
    BadValue,
    ConfigError,
    FlowError,
    MissingColumn,
    MissingTable,
    PermissionDenied,
    RunFailed,
    SqlError,
    StorageFull,
)
from ematix_flow.foundation.redact import mask

_RAISED = re.compile(re.escape(BAD_VALUE) + r"\|(?P<column>[^|]*)\|(?P<type>[^|]*)\|(?P<value>[^\n]*)")
_OF_CONNECTORS = {
    NO_SCALE: "set decimal.handling.mode=string in the connector, or schemas.enable=true in its JSON converter",
    NO_UNIT: "set schemas.enable=true in the connector's JSON converter, or time.precision.mode=isostring in the connector",
}
_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
_NAME = re.compile(r"`([^`]+(?:`\.`[^`]+)*)`")
_DATA_STATE = re.compile(
    r"SQLSTATE: (?:22\w{3}|P0001)"
)  # the SQL standard's class 22 (data exceptions), and raise_error of a statement


def translate(exc: BaseException) -> FlowError:
    """Return any exception of a Spark call as a FlowError."""
    if isinstance(exc, FlowError):
        return exc
    text = str(exc)
    carried = carried_error_in(text)
    if carried is not None:
        return carried
    lost = lost_engine_error(exc)
    if lost is not None:
        return lost
    raised = _RAISED.search(text)
    if raised is not None:
        return _bad_value(raised)
    condition = _condition(exc)
    for prefix, make in _BY_CONDITION.items():
        if condition.startswith(prefix):
            return make(text)
    if _DATA_STATE.search(text):
        return _value(text)
    if match := _NO_MODULE.search(text):
        return ConfigError(
            f"the Python of a task has no package {match[1]}",
            hint="install it where the tasks run; for clusters see docs/clusters.md, Python on the workers",
        )
    if "No space left on device" in text:
        return StorageFull("no space left on the disk", hint="free space, or point EMATIX_FLOW_STAGE_DIR elsewhere")
    if "Permission denied" in text or "AccessDeniedException" in text:
        return PermissionDenied(first_line(text), hint="check the rights on that folder")
    known = recognise_sail_error(text) if is_active_session_sail() else None
    if known is not None:
        return known
    return RunFailed(first_line(text), hint="flow run … --verbose shows the whole story")


def _condition(exc: BaseException) -> str:
    for name in ("getCondition", "getErrorClass"):
        ask = getattr(exc, name, None)
        if ask is not None:
            try:
                return str(ask() or "")
            except Exception:  # some captured exceptions have lost their JVM object
                return ""
    return ""


def _bad_value(match: re.Match[str]) -> FlowError:
    value = mask(match["value"].strip().split(" SQLSTATE")[0])
    hint = next((system for mark, system in _OF_CONNECTORS.items() if value.endswith(mark)), None)
    return BadValue(
        f"column {match['column']!r}: {value!r} is not a {match['type']}; nothing was loaded",
        hint=hint or "correct the source, or parse it with a normalizer (parse_int, parse_timestamp, …)",
        column=match["column"],
    )


def _missing_table(text: str) -> FlowError:
    name = _NAME.search(text)
    return MissingTable(
        f"table {name.group(1).replace('`', '') if name else '?'} does not exist", hint="check schema and table name"
    )


def _missing_column(text: str) -> FlowError:
    names = _NAME.findall(text)
    near = f"did you mean {names[1].replace('`', '')!r}?" if len(names) > 1 else "check the column name"
    return MissingColumn(f"column {names[0].replace('`', '') if names else '?'} does not exist", hint=near)


def _syntax(text: str) -> FlowError:
    return SqlError(first_line(text), hint="try it with: flow validate NAME")


def _value(text: str) -> FlowError:
    return BadValue(f"{first_line(text)}; nothing was loaded", hint="correct the source, or parse it with a normalizer")


_BY_CONDITION = {
    "TABLE_OR_VIEW_NOT_FOUND": _missing_table,
    "PATH_NOT_FOUND": _missing_table,
    "UNRESOLVED_COLUMN": _missing_column,
    "PARSE_SYNTAX_ERROR": _syntax,
    "DATATYPE_MISMATCH": _syntax,
    "UNRESOLVED_ROUTINE": _syntax,
    "CAST_INVALID_INPUT": _value,
    "CAST_OVERFLOW": _value,
    "NUMERIC_VALUE_OUT_OF_RANGE": _value,
    "ARITHMETIC_OVERFLOW": _value,
}


def first_line(text: str) -> str:
    """Return the first non-empty line of a long message, masked and at most 500 characters long."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return mask(lines[0])[:500] if lines else "Spark failed without a word"
