"""Change data (CDC): columns staged beside each row, the watermark table of keys, SQL that detects stale changes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace

from ematix_flow.contract.shape import TargetShape
from ematix_flow.declare.strategy import Changes
from ematix_flow.declare.table import TableSpec
from ematix_flow.declare.types import BigInt, Column, String, Text, TimestampTZ

CREATE, UPDATE, DELETE, READ = "c", "u", "d", "r"
"""Operations on a row; a READ comes from a snapshot, which does not record when the row changed."""

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
"""Staged beside the columns of the row: the operation, its time, its position in the source's log, the row's key as
JSON, the number of changes of this key in the micro-batch (this is the last of them), and the columns (a JSON array)
whose value the message omits because it did not change: they keep the value in the target."""
LONGEST_KEY = 400
"""Maximum number of characters of a key that is stored unchanged; longer keys end in their hash."""

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
"""The CDC watermark table: the newest applied change of each key."""


def staged_shape(shape: TargetShape, strategy: Changes) -> TargetShape:
    """Return the same table with the staged CDC columns added to the declared ones."""
    declared = shape.declared
    soft = (
        () if strategy.soft is None or strategy.soft in declared.column_names else (shape.table.column(strategy.soft),)
    )
    return replace(shape, declared=replace(declared, columns=(*declared.columns, *soft, *STAGED)))


def written_columns(shape: TargetShape) -> tuple[str, ...]:
    """Return the columns of the staged rows that the table has."""
    own = {column.name for column in STAGED}
    return tuple(name for name in shape.declared.column_names if name not in own)


ORIGIN_LENGTH = 8
ORIGIN_MARK = "@"
"""A log position is written `origin@place`; the origin is a hash of the source's names, and only places of one origin
can be compared. Watermark tables of earlier versions store places without an origin, assumed to be of the same one."""


def origin_sql(place: str) -> str:
    """Return SQL for the origin of a log position: NULL without a position, empty where it has no origin."""
    return (
        f"CASE WHEN substr({place}, {ORIGIN_LENGTH + 1}, 1) = '{ORIGIN_MARK}' THEN substr({place}, 1, {ORIGIN_LENGTH}) "
        f"WHEN {place} IS NOT NULL THEN '' END"
    )


def stale_sql(known_ms: str, known_place: str, ms: str, place: str) -> str:
    """Return SQL, valid on every target, that is true where the known change is newer than the given one.

    Log positions decide where both changes have one in the same log: a clock may step back, and a statement is stamped
    when it begins, not when it is committed. Otherwise the clock decides. NULL where neither can.
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


def kept_columns_condition(sets: Iterable[str], column: str) -> list[str]:
    """Return those of the staged KEPT texts (JSON arrays) that contain the column, sorted."""
    return sorted(one for one in sets if column in json.loads(one))
