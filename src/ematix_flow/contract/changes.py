"""Changes on their way into a table: what is staged of each beside its row, and what the target remembers of its keys."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace

from ematix_flow.contract.shape import TargetShape
from ematix_flow.declare.strategy import Changes
from ematix_flow.declare.table import TableSpec
from ematix_flow.declare.types import BigInt, Column, String, Text, TimestampTZ

CREATE, UPDATE, DELETE, READ = "c", "u", "d", "r"
"""What happened to a row; a READ is of a snapshot, and knows no moment at which the row became so."""

OPERATION, EVENT_MS, POSITION, KEY, EVENTS = "_flow_op", "_flow_ms", "_flow_position", "_flow_key", "_flow_events"
KEPT = "_flow_kept"
STAGED = (
    Column(Text(), False, False, OPERATION),
    Column(BigInt(), True, False, EVENT_MS),
    Column(Text(), True, False, POSITION),
    Column(Text(), False, False, KEY),
    Column(BigInt(), False, False, EVENTS),
    Column(Text(), True, False, KEPT),
)
"""Beside the columns of the row: the operation, when it happened, where in the source's log, the row's key as JSON, how many
changes of this key were in the micro-batch, of which this is the last, and the columns (a JSON array) whose value the message
leaves out because it did not change: they keep what the target has."""
LONGEST_KEY = 400
"""Characters of a key that is remembered as it is; longer ones end in their hash."""

GATE = TableSpec(
    "ematix_flow",
    "cdc_idempotency",
    (
        Column(String(255), False, True, "pipeline_name"),
        Column(String(LONGEST_KEY), False, True, "pk_json"),
        Column(BigInt(), False, False, "last_seen_ts_ms"),
        Column(String(255), True, False, "source_position"),
        Column(TimestampTZ(), False, False, "updated_at"),
    ),
)
"""The newest change of each key that was applied."""


def staged_shape(shape: TargetShape, strategy: Changes) -> TargetShape:
    """The same table, with what is staged beside the declared columns."""
    declared = shape.declared
    soft = (
        () if strategy.soft is None or strategy.soft in declared.column_names else (shape.table.column(strategy.soft),)
    )
    return replace(shape, declared=replace(declared, columns=(*declared.columns, *soft, *STAGED)))


def written_columns(shape: TargetShape) -> tuple[str, ...]:
    """The columns of the staged rows that the table has."""
    own = {column.name for column in STAGED}
    return tuple(name for name in shape.declared.column_names if name not in own)


ORIGIN_LENGTH = 8
ORIGIN_MARK = "@"
"""A place in a log is written `origin@place`: places of one origin, which is a hash of the source's names, can be compared.
Gates of earlier versions have places without an origin, which are taken to be of the same one."""


def origin_sql(place: str) -> str:
    """Return SQL for the origin of a place: NULL without a place, empty where it has none."""
    return (
        f"CASE WHEN substr({place}, {ORIGIN_LENGTH + 1}, 1) = '{ORIGIN_MARK}' THEN substr({place}, 1, {ORIGIN_LENGTH}) "
        f"WHEN {place} IS NOT NULL THEN '' END"
    )


def stale_sql(known_ms: str, known_place: str, ms: str, place: str) -> str:
    """Return SQL, in words of every target, that is true where what is known is newer than a change.

    The log of the source decides where both have a place in the same one: a clock may step back, and a statement is stamped
    when it begins, not when it is committed. The clock decides otherwise. NULL where neither can.
    """
    bare_known, bare = _bare(known_place), _bare(place)
    marked = [f"substr({one}, {ORIGIN_LENGTH + 1}, 1) = '{ORIGIN_MARK}'" for one in (known_place, place)]
    differ = f"substr({known_place}, 1, {ORIGIN_LENGTH}) <> substr({place}, 1, {ORIGIN_LENGTH})"
    return (
        f"(CASE WHEN {known_place} IS NULL OR {place} IS NULL OR ({marked[0]} AND {marked[1]} AND {differ}) "
        f"OR length({bare_known}) <> length({bare}) THEN {known_ms} > {ms} ELSE {bare_known} > {bare} END)"
    )


def _bare(place: str) -> str:
    return (
        f"(CASE WHEN substr({place}, {ORIGIN_LENGTH + 1}, 1) = '{ORIGIN_MARK}' "
        f"THEN substr({place}, {ORIGIN_LENGTH + 2}) ELSE {place} END)"
    )


def keeping(sets: Iterable[str], column: str) -> list[str]:
    """Return those of the staged KEPT texts that name the column."""
    return sorted(one for one in sets if column in json.loads(one))
