"""Envelopes of change messages: the paths of the operation, the rows, the time and the position in the source's log.

Everything is read from the message's JSON text, object by object, as maps of texts: the fields of a row may differ
from message to message, and the column that takes a field decides whether it is a number or a moment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ematix_flow.contract.cdc import CREATE, DELETE, ORIGIN_LENGTH, ORIGIN_MARK, READ, UPDATE
from ematix_flow.declare.streams.parts import CDC
from ematix_flow.sql.spark_text import text_literal

_SAME = {word: word for word in (CREATE, UPDATE, DELETE, READ)}
_MAXWELL = {"insert": CREATE, "update": UPDATE, "delete": DELETE, "bootstrap-insert": READ}
_OBJECT = "'MAP<STRING, STRING>'"
# Below the first bound a moment is in seconds, then in milliseconds, then in microseconds, then in nanoseconds.
_SECONDS, _MILLIS, _MICROS = "100000000000", "100000000000000", "100000000000000000"


@dataclass(frozen=True)
class ChangeEnvelope:
    """The parts of a message, as paths below it, and the names of its operations."""

    operation: str
    before: str | None
    after: str
    moment: str | None
    key: str | None
    words: Mapping[str, str]
    position: str = "CAST(NULL AS STRING)"
    """SQL over the map `event`: the change's position in the source's log, as a sortable text after its origin."""
    table: str = "CAST(NULL AS STRING)"
    """SQL over the map `event`: the table in which the row changed."""
    is_wrapped: bool = False
    """Whether the message may be in the `payload` of one with a `schema`, as Kafka Connect writes it."""


def envelope_of(cdc: CDC) -> ChangeEnvelope:
    """Return the declared envelope; a declared path or word takes precedence over the usual one."""
    usual = _USUAL[cdc.envelope]
    return ChangeEnvelope(
        operation=cdc.op_field or usual.operation,
        before=cdc.before_field or usual.before,
        after=cdc.after_field or usual.after,
        moment=cdc.ts_field or usual.moment,
        key=cdc.key_field or usual.key,
        words={**usual.words, **(cdc.op_map or {})},
        position=usual.position,
        table=usual.table,
        is_wrapped=usual.is_wrapped,
    )


def as_object(text: str) -> str:
    """Return SQL for a JSON text as a map of texts; NULL where it is no object."""
    return f"from_json({text}, {_OBJECT})"


def member(of: str, name: str) -> str:
    """Return SQL for a member of such a map."""
    return f"try_element_at({of}, {text_literal(name)})"


def value_at(event: str, path: str) -> str:
    """Return SQL for the text at a dotted path below a map."""
    first, *rest = path.split(".")
    value = member(event, first)
    for name in rest:
        value = member(as_object(value), name)
    return value


def milliseconds(text: str) -> str:
    """Return SQL for a moment in milliseconds since 1970: from a number of any usual unit, or from ISO 8601."""
    number = f"try_cast({text} AS DECIMAL(30, 6))"
    size = f"abs({number})"
    return (
        f"CASE WHEN {number} IS NULL THEN unix_millis(try_cast({text} AS TIMESTAMP)) "
        f"WHEN {size} < {_SECONDS} THEN CAST(floor({number} * 1000) AS BIGINT) "
        f"WHEN {size} < {_MILLIS} THEN CAST(floor({number}) AS BIGINT) "
        f"WHEN {size} < {_MICROS} THEN CAST(floor({number} / 1000) AS BIGINT) "
        f"ELSE CAST(floor({number} / 1000000) AS BIGINT) END"
    )


def operation(value: str, words: Mapping[str, str]) -> str:
    """Return SQL for the operation that a word stands for; NULL for an unknown word."""
    cases = " ".join(f"WHEN {text_literal(word)} THEN {text_literal(meant)}" for word, meant in words.items())
    return f"CASE {value} {cases} END"


def _padded_number(text: str, length: int) -> str:
    return f"lpad({text}, {length}, '0')"


def _position_expression(names: Sequence[str], cases: str) -> str:
    """Return SQL for a position after its origin: a hash of the names that identify the log, among them its server."""
    known = ", ".join(f"coalesce({name}, '')" for name in names)
    origin = f"left(sha2(concat_ws('|', {known}), 256), {ORIGIN_LENGTH})"
    return f"concat({origin}, '{ORIGIN_MARK}', {cases})"


def _debezium_position() -> str:
    """Return SQL for the position by Debezium's field names: PostgreSQL, MySQL and MariaDB, SQL Server, Oracle."""
    source = as_object(member("event", "source"))
    lsn, file, pos, row = (member(source, name) for name in ("lsn", "file", "pos", "row"))
    number = f"regexp_extract({file}, '([0-9]+)$', 1)"
    change = [member(source, name) for name in ("commit_lsn", "change_lsn", "event_serial_no")]
    scn = member(source, "scn")
    origin = [*(member(source, name) for name in ("connector", "name", "server_id")), _without_number(file)]
    return _position_expression(
        origin,
        f"CASE WHEN {lsn} RLIKE '^[0-9]+$' THEN {_padded_number(lsn, 20)} "
        f"WHEN {file} RLIKE '[0-9]$' AND {pos} IS NOT NULL THEN "
        f"concat_ws(':', {_padded_number(number, 12)}, {_padded_number(pos, 20)}, {_padded_number(f'coalesce({row}, 0)', 10)}) "
        f"WHEN {change[1]} IS NOT NULL THEN "
        f"concat_ws('/', coalesce({change[0]}, ''), {change[1]}, {_padded_number(f'coalesce({change[2]}, 0)', 10)}) "
        f"WHEN {scn} RLIKE '^[0-9]+$' THEN {_padded_number(scn, 24)} END",
    )


def _without_number(file: str) -> str:
    return f"regexp_replace({file}, '[0-9]+(:[0-9]+)?$', '')"


def _maxwell_position() -> str:
    """Return SQL for a position such as `master.000006:800911`, which `output_binlog_position` adds."""
    position = member("event", "position")
    file, place = (f"regexp_extract({position}, '([0-9]+):([0-9]+)$', {group})" for group in (1, 2))
    return _position_expression(
        [member("event", "server_id"), _without_number(position)],
        f"CASE WHEN {position} RLIKE '[0-9]+:[0-9]+$' THEN concat_ws(':', {_padded_number(file, 12)}, {_padded_number(place, 20)}) END",
    )


def _debezium_table() -> str:
    source = as_object(member("event", "source"))
    return f"nullif(concat_ws('.', {', '.join(member(source, name) for name in ('db', 'schema', 'table'))}), '')"


def _maxwell_table() -> str:
    return f"nullif(concat_ws('.', {member('event', 'database')}, {member('event', 'table')}), '')"


def shown_words(words: Sequence[str]) -> str:
    """Return words as a list for a sentence."""
    return ", ".join(repr(word) for word in words)


_USUAL = {
    "debezium": ChangeEnvelope(
        "op", "before", "after", "source.ts_ms", None, _SAME, _debezium_position(), _debezium_table(), is_wrapped=True
    ),
    "maxwell": ChangeEnvelope(
        "type", "old", "data", "ts", None, {**_SAME, **_MAXWELL}, _maxwell_position(), _maxwell_table()
    ),
    "custom": ChangeEnvelope("op", None, "after", None, None, _SAME),
}
