"""SQL for values of each type in SQLite, whose columns accept any value: tests and canonical forms.

Dates are `2026-01-31`, timestamps `2026-01-31 10:00:00.000000`, instants the same with `+00:00`: text that sorts.
Other spellings (a `T`, no seconds, another offset, fewer digits) are accepted and converted to the canonical form.
"""

from __future__ import annotations

from ematix_flow.declare.types import ColumnType, Numeric

_RANGES = {"small_int": 2**15, "integer": 2**31, "big_int": None}
_CLASSES = {
    "small_int": ("integer",), "integer": ("integer",), "big_int": ("integer",), "float": ("real", "integer"),
    "double": ("real", "integer"), "json": ("text", "integer", "real"), "jsonb": ("text", "integer", "real"),
    "bytes": ("blob", "text"), "numeric": ("integer", "real", "text"),
}  # fmt: skip
_TRUE, _FALSE = ("'true'", "'t'", "'yes'", "'y'", "'1'"), ("'false'", "'f'", "'no'", "'n'", "'0'")
_HEX, _D = "[0-9a-f]", "[0-9]"
_CANONICAL = f"{_D * 4}-{_D * 2}-{_D * 2} {_D * 2}:{_D * 2}:{_D * 2}.{_D * 6}"
_UUID = "-".join(_HEX * digits for digits in (8, 4, 4, 4, 12))
MISMATCH = "zeroblob(9223372036854775807 - ({value} IS NULL))"
"""An expression that always fails when it is evaluated, and that SQLite cannot compute in advance."""


def fits(value: str, column_type: ColumnType) -> str:
    """Return SQL for whether a value that is not NULL is of the type; the SQL is never NULL."""
    return f"coalesce({_fits(value, column_type)}, 0)"


def _fits(value: str, column_type: ColumnType) -> str:
    kind = column_type.kind
    if kind in _RANGES:
        limit = _RANGES[kind]
        inside = f" AND {value} BETWEEN {-limit} AND {limit - 1}" if limit else ""
        return f"(typeof({value}) = 'integer'{inside})"
    if isinstance(column_type, Numeric):
        return _is_decimal(value, column_type)
    if kind == "boolean":
        words = ", ".join((*_TRUE, *_FALSE))
        return f"CASE typeof({value}) WHEN 'integer' THEN {value} IN (0, 1) WHEN 'text' THEN lower({value}) IN ({words}) END"
    if kind == "date":
        return f"(typeof({value}) = 'text' AND date({value}, '+0 days') = {value} AND {value} >= '0001')"
    if kind in ("timestamp", "timestamp_tz"):
        # Nearly every value is canonical, and the general test costs ten times as much.
        quick = f"datetime(substr({value}, 1, 19), '+0 days') = substr({value}, 1, 19) AND {value} >= '0001'"
        usual = f"{value} GLOB '{_CANONICAL}{'' if kind == 'timestamp' else '+00:00'}'"
        return f"(typeof({value}) = 'text' AND CASE WHEN {usual} THEN {quick} ELSE {_is_moment(value)} END)"
    return is_storable(value, column_type)


def is_storable(value: str, column_type: ColumnType) -> str:
    """Return SQL for whether the storage class fits the type: fast, and sufficient where a strict cast follows."""
    if column_type.kind == "boolean":
        return fits(value, column_type)
    classes = _CLASSES.get(column_type.kind, ("text",))
    return f"(typeof({value}) IN ({', '.join(repr(name) for name in classes)}))"


def is_valid(value: str, column_type: ColumnType) -> str:
    """Return SQL of a stricter test than `fits`, including the rules that only the declaration has."""
    kind = column_type.kind
    if isinstance(column_type, Numeric):
        return _rounds_to(value, column_type)
    if kind in ("json", "jsonb"):
        return f"({fits(value, column_type)} AND json_valid({value}))"
    if kind == "uuid":
        return f"({fits(value, column_type)} AND lower({value}) GLOB '{_UUID}')"
    return fits(value, column_type)


def canonical(value: str, column_type: ColumnType) -> str:
    """Return SQL of a fitting value in the canonical form of its type; NULL stays NULL."""
    kind = column_type.kind
    if kind == "boolean":
        return f"CASE WHEN typeof({value}) = 'text' THEN lower({value}) IN ({', '.join(_TRUE)}) ELSE {value} END"
    if kind == "timestamp":
        return _moment(value, "")
    if kind == "timestamp_tz":
        return _moment(value, "+00:00")
    if isinstance(column_type, Numeric):
        return f"CASE typeof({value}) WHEN 'real' THEN printf('%.{column_type.scale}f', {value}) ELSE CAST({value} AS TEXT) END"
    if kind in ("json", "jsonb"):
        return f"CAST({value} AS TEXT)"
    if kind in ("float", "double"):
        return f"CAST({value} AS REAL)"
    if kind == "bytes":
        return f"CAST({value} AS BLOB)"
    return f"lower({value})" if kind == "uuid" else value


def stored(value: str, column_type: ColumnType) -> str:
    """Return SQL of a valid value in the form in which a column of the type stores it."""
    kind = column_type.kind
    if kind == "float":
        return f"flow_float32({value})"
    if isinstance(column_type, Numeric):
        return f"flow_decimal({value}, {column_type.scale})"
    return as_text(value) if kind in ("text", "string") else canonical(value, column_type)


def as_text(value: str) -> str:
    """Return SQL of any value but a BLOB as text, with enough digits to distinguish neighbouring numbers."""
    short = f"CAST({value} AS TEXT)"
    exact = f"CASE WHEN CAST({short} AS REAL) = {value} THEN {short} ELSE printf('%!.17g', {value}) END"
    return f"CASE typeof({value}) WHEN 'real' THEN {exact} ELSE {short} END"


def _is_decimal(value: str, column_type: Numeric) -> str:
    scale, whole = column_type.scale, column_type.precision - column_type.scale
    number = f"round({value}, {scale}) = {value} AND {_is_below(value, whole)}"
    digits = f"ltrim({value}, '-')"
    point = f"instr({digits} || '.', '.')"
    text = f"{_is_plain(value)} AND {point} - 1 <= {max(whole, 1)} AND length({digits}) - {point} <= {scale}"
    return f"CASE typeof({value}) WHEN 'integer' THEN {number} WHEN 'real' THEN {number} WHEN 'text' THEN {text} END"


def _rounds_to(value: str, column_type: Numeric) -> str:
    """Return SQL for whether a number fits the type after rounding to its scale, as other databases round."""
    scale, whole = column_type.scale, column_type.precision - column_type.scale
    digits = f"ltrim(flow_decimal({value}, {scale}), '-')"
    short = f"length({digits}) <= {max(whole, 1) + (scale + 1 if scale else 0)}"
    if whole == 0:
        short += f" AND {digits} GLOB '0*'"
    # CASE, because AND evaluates both its sides, and the function fails on text that is not a number.
    number = f"CASE WHEN {_is_below(value, 39)} THEN {short} END"
    text = f"CASE WHEN {_is_plain(value)} THEN {short} END"
    cases = f"CASE typeof({value}) WHEN 'integer' THEN {number} WHEN 'real' THEN {number} WHEN 'text' THEN {text} END"
    return f"coalesce({cases}, 0)"


def _is_below(value: str, digits: int) -> str:
    return f"{value} < 1e{digits} AND {value} > -1e{digits}"  # abs() fails on the smallest integer


def _is_plain(value: str) -> str:
    digits = f"ltrim({value}, '-')"
    shape = f"{digits} GLOB '[0-9]*' AND {digits} NOT GLOB '*[^0-9.]*' AND {digits} NOT GLOB '*.*.*'"
    return f"{shape} AND {value} NOT GLOB '--*'"


def _zone(value: str) -> str:
    """Return SQL of the zone of a timestamp text: `Z`, an offset, or empty."""
    offset = f"length({value}) > 15 AND substr({value}, -6, 1) IN ('+', '-') AND substr({value}, -3, 1) = ':'"
    return f"CASE WHEN {value} GLOB '*Z' THEN 'Z' WHEN {offset} THEN substr({value}, -6) ELSE '' END"


def _local(value: str) -> str:
    return f"substr({value}, 1, length({value}) - length({_zone(value)}))"


def _is_moment(value: str) -> str:
    local, zone = _local(value), _zone(value)
    clock = f"substr({local}, 12, 8)"
    fraction = f"substr({local}, 21)"
    seconds = (
        f"time({clock}, '+0 days') = {clock} AND (length({local}) = 19 OR substr({local}, 20, 1) = '.' "
        f"AND length({local}) BETWEEN 21 AND 26 AND {fraction} NOT GLOB '*[^0-9]*')"
    )
    return (
        f"date(substr({value}, 1, 10), '+0 days') = substr({value}, 1, 10) AND {value} >= '0001' "
        f"AND ({zone} IN ('', 'Z') OR time('00:00' || {zone}) IS NOT NULL) AND CASE length({local}) "
        f"WHEN 10 THEN {zone} = '' WHEN 16 THEN substr({local}, 11, 1) IN (' ', 'T') AND time(substr({local}, 12), '+0 days') = substr({local}, 12) || ':00' "
        f"ELSE substr({local}, 11, 1) IN (' ', 'T') AND {seconds} END"
    )


def _moment(value: str, suffix: str) -> str:
    """Return SQL of the canonical timestamp: unchanged where it is canonical already, else converted."""
    length = 26 + len(suffix)
    done = f"length({value}) = {length} AND substr({value}, 11, 1) = ' ' AND substr({value}, 20, 1) = '.'"
    if suffix:
        done += f" AND substr({value}, 27) = '{suffix}'"
    local, zone = _local(value), _zone(value)
    # Without its fraction: SQLite would round that to milliseconds, possibly up to the next second.
    shifted = f"strftime('%Y-%m-%d %H:%M:%S', substr({local}, 1, 19) || {zone})"
    fraction = f"'.' || substr(substr({local}, 21) || '000000', 1, 6)"
    return f"CASE WHEN {done} THEN {value} ELSE {shifted} || {fraction} || '{suffix}' END"
