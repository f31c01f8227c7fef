"""The meaning of values in changes: by the schema that Kafka Connect writes beside them, and Debezium's placeholders.

A *kind* is a column of such a schema as one text: `name|scale|precision|type|item|item's scale|item's precision`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import uuid

from ematix_flow.contract.cdc import EVENT_MS
from ematix_flow.dataplane.task_errors import NO_SCALE, NO_UNIT
from ematix_flow.declare.types import Column
from ematix_flow.sql.spark_text import text_literal

DECIMAL = "org.apache.kafka.connect.data.Decimal"
VARIABLE_DECIMAL = "io.debezium.data.VariableScaleDecimal"
DAYS = ("io.debezium.time.Date", "org.apache.kafka.connect.data.Date")
MOMENTS = {
    "io.debezium.time.Timestamp": "timestamp_millis({})",
    "org.apache.kafka.connect.data.Timestamp": "timestamp_millis({})",
    "io.debezium.time.MicroTimestamp": "timestamp_micros({})",
    "io.debezium.time.NanoTimestamp": "timestamp_micros({} div 1000)",
}
_TIMES = ("date", "timestamp", "timestamp_tz")
_ISO_DATE = "^([+-]?[0-9]{4,6}-[0-9]{2}-[0-9]{2})(Z|[+-][0-9]{2}:?[0-9]{2})$"
_BASE64 = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
_TWO_TO_64 = f"{1 << 64}BD"
_NOT_THERE = "__debezium_unavailable_value"


def placeholders(text: str = _NOT_THERE) -> tuple[str, ...]:
    """Return the texts that stand for an unchanged large value, one for each way in which Debezium writes values."""
    data = text.encode()
    in_base64 = base64.b64encode(data).decode()
    # As java.util.UUID.nameUUIDFromBytes makes it, which uses no namespace.
    of_uuids = str(uuid.UUID(bytes=hashlib.md5(data, usedforsecurity=False).digest(), version=3))
    arrays = [[text], [in_base64], [of_uuids], list(data)]
    return (
        text, in_base64, data.hex(), json.dumps({text: text}, separators=(",", ":")),
        *(json.dumps(one, separators=(",", ":")) for one in arrays),
    )  # fmt: skip


UNAVAILABLE = placeholders()
IS_UNAVAILABLE = f"({', '.join(map(text_literal, UNAVAILABLE))})"


def column_kinds(schema: str) -> str:
    """Return SQL for the kinds of a row's columns, from Connect's schema of the message."""
    parts = f"from_json({schema}, {_SCHEMA}).fields"
    rows = f"filter({parts}, part -> part.field IN ('after', 'before') AND part.fields IS NOT NULL)"
    fields = (
        "concat_ws('|', coalesce(one.name, one.type), coalesce(try_element_at(one.parameters, 'scale'), ''), "
        "coalesce(try_element_at(one.parameters, 'connect.decimal.precision'), ''), coalesce(one.type, ''), "
        "coalesce(one.items.name, one.items.type, ''), coalesce(try_element_at(one.items.parameters, 'scale'), ''), "
        "coalesce(try_element_at(one.items.parameters, 'connect.decimal.precision'), ''))"
    )
    return f"map_from_entries(transform(get({rows}, 0).fields, one -> struct(one.field, {fields})))"


_OF_A_FIELD = "type: STRING, name: STRING, parameters: MAP<STRING, STRING>"
_SCHEMA = f"'fields ARRAY<STRUCT<field: STRING, fields: ARRAY<STRUCT<field: STRING, {_OF_A_FIELD}, items: STRUCT<{_OF_A_FIELD}>>>>>'"


def decode_image(image: str, kinds: str) -> str:
    """Return SQL for a map of texts in which numbers encoded as bytes are decoded, also inside of arrays.

    One expression for all columns, whatever their number: one for each would take Spark longer than the rows.
    """
    value, kind = "one.value", f"try_element_at({kinds}, one.key)"
    scale = "coalesce(try_cast(split_part(kind, '|', 2) AS INT), 0)"
    inner = f"from_json({value}, 'scale INT, value STRING')"
    cases = (
        f"CASE WHEN {value} IS NULL OR kind IS NULL OR {value} IN {IS_UNAVAILABLE} THEN {value} "
        f"WHEN startswith(kind, '{DECIMAL}|') THEN coalesce({unscaled(value, scale)}, {value}) "
        f"WHEN startswith(kind, '{VARIABLE_DECIMAL}|') THEN coalesce({unscaled(f'{inner}.value', f'{inner}.scale')}, {value}) "
        f"WHEN startswith(kind, 'array|') THEN coalesce({_array(value)}, {value}) ELSE {value} END"
    )
    decoded_map = f"transform(map_entries({image}), one -> struct(one.key, {_bind_once(kind, 'kind', cases)}))"
    return f"CASE WHEN {kinds} IS NULL THEN {image} ELSE map_from_entries({decoded_map}) END"


def _array(value: str) -> str:
    """Return SQL for a JSON array of byte-encoded numbers, days or moments, decoded; NULL for any other array."""
    item, scale = "split_part(kind, '|', 5)", "coalesce(try_cast(split_part(kind, '|', 6) AS INT), 0)"
    inner = "from_json(item, 'scale INT, value STRING')"
    moments = " ".join(
        f"WHEN '{name}' THEN {_quoted(_moment(from_number, 'item'))}" for name, from_number in MOMENTS.items()
    )
    days = " ".join(f"WHEN '{name}' THEN {_quoted(_day('item'))}" for name in DAYS)
    decoded_item = (
        f"CASE {item} WHEN '{DECIMAL}' THEN {unscaled('item', scale)} "
        f"WHEN '{VARIABLE_DECIMAL}' THEN {unscaled(f'{inner}.value', f'{inner}.scale')} {moments} {days} END"
    )
    items = f"transform(from_json({value}, 'ARRAY<STRING>'), item -> CASE WHEN item IS NULL THEN 'null' ELSE {decoded_item} END)"
    whole = "CASE WHEN forall(items, item -> item IS NOT NULL) THEN concat('[', array_join(items, ','), ']') END"
    return _bind_once(items, "items", whole)


_FORM = "'yyyy-MM-dd HH:mm:ss.SSSSSS'"


def _moment(from_number: str, value: str) -> str:
    return f"date_format({from_number.format(f'try_cast({value} AS BIGINT)')}, {_FORM})"


def _day(value: str) -> str:
    return f"CAST(date_from_unix_date(try_cast({value} AS INT)) AS STRING)"


def _quoted(value: str) -> str:
    return f"concat('\"', {value}, '\"')"


def _bind_once(value: str, name: str, body: str) -> str:
    """Return SQL that binds a value to a name in `body`, so that it is computed, and written, once."""
    return f"get(transform(array({value}), {name} -> {body}), 0)"


def unscaled(value: str, scale: str) -> str:
    """Return SQL for a decimal in base64 bytes (big-endian, two's complement); NULL for none, or over 38 digits."""
    digits = f"hex(try_to_binary({value}, 'base64'))"
    size = "CASE WHEN h >= '8' THEN translate(h, '0123456789ABCDEF', 'FEDCBA9876543210') ELSE h END"
    high, low = (f"CAST(conv(substr(lpad({size}, 32, '0'), {at}, 16), 16, 10) AS DECIMAL(38, 0))" for at in (1, 17))
    number = f"try_add(try_add(try_multiply({high}, {_TWO_TO_64}), {low}), CASE WHEN h >= '8' THEN 1BD ELSE 0BD END)"
    padded = "lpad(n, greatest(length(n), p + 1), '0')"
    pointed = (
        f"CASE WHEN p > 0 THEN concat(left({padded}, length({padded}) - p), '.', right({padded}, p)) "
        "ELSE concat(n, repeat('0', -p)) END"
    )
    signed = f"concat(CASE WHEN h >= '8' THEN '-' ELSE '' END, {pointed})"
    converted_number = _bind_once(f"CAST({number} AS STRING)", "n", _bind_once(scale, "p", signed))
    return _bind_once(digits, "h", f"CASE WHEN length(h) BETWEEN 2 AND 32 THEN {converted_number} END")


def convert_value(value: str, kind: str, column: Column) -> str:
    """Return SQL that makes a message's text one that the column's type takes; `kind` is SQL for the column's kind."""
    if column.type.kind in _TIMES:
        return _time(value, f"split_part({kind}, '|', 1)", column.type.kind)
    if column.type.kind == "numeric":
        return _numeric(value, kind)
    if column.type.kind == "bytes":  # JSON has no bytes, and base64 is how all tools write them
        return f"coalesce(try_to_binary({value}, 'base64'), CAST({value} AS BINARY))"
    return value


def _time(value: str, kind: str, wanted: str) -> str:
    number = f"CAST({value} AS BIGINT)"
    form = "'yyyy-MM-dd'" if wanted == "date" else _FORM
    moments = " ".join(
        f"WHEN {text_literal(name)} THEN date_format({from_number.format(number)}, {form})"
        for name, from_number in MOMENTS.items()
    )
    days = " ".join(f"WHEN {text_literal(name)} THEN {_day(value)}" for name in DAYS)
    # Spark would take a bare number for a year.
    unknown = f"concat({value}, {text_literal(NO_UNIT)})"
    plain = f"regexp_replace({value}, {text_literal(_ISO_DATE)}, '$1')" if wanted == "date" else value
    return f"CASE WHEN {value} RLIKE '^-?[0-9]+$' THEN CASE {kind} {moments} {days} ELSE {unknown} END ELSE {plain} END"


def _numeric(value: str, kind: str) -> str:
    """Return SQL for a number; bytes without a kind are decoded by the scale beside them, or marked as undecodable."""
    inner = _bind_once(f"from_json({value}, 'scale INT, value STRING')", "d", unscaled("d.value", "d.scale"))
    is_bytes = f"{kind} IS NULL AND try_cast({value} AS DOUBLE) IS NULL AND {value} RLIKE {text_literal(_BASE64)}"
    return (
        f"CASE WHEN startswith({value}, '{{') THEN coalesce({inner}, {value}) "
        f"WHEN {is_bytes} THEN concat({value}, {text_literal(NO_SCALE)}) ELSE {value} END"
    )


def deleted_at(column: Column, goes: str, ms: str = EVENT_MS) -> str:
    """Return SQL for the time of a row's deletion, or a flag for a boolean column; NULL, or false, while it exists."""
    if column.type.kind == "boolean":
        return goes
    moment = f"coalesce(timestamp_millis({ms}), current_timestamp())"
    kind = {"date": "DATE", "timestamp": "TIMESTAMP_NTZ"}.get(column.type.kind, "TIMESTAMP")
    return f"CASE WHEN {goes} THEN CAST({moment} AS {kind}) END"
