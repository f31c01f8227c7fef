"""Changes on their way into a table: what is staged of each beside its row, and what the target remembers of its keys."""

from __future__ import annotations

from dataclasses import replace

from ematix_flow.contract.shape import TargetShape
from ematix_flow.declare.strategy import Changes
from ematix_flow.declare.table import TableSpec
from ematix_flow.declare.types import BigInt, Column, String, Text, TimestampTZ

CREATE, UPDATE, DELETE, READ = "c", "u", "d", "r"
"""What happened to a row; a READ is of a snapshot, and knows no moment at which the row became so."""

OPERATION, EVENT_MS, POSITION, KEY, EVENTS = "_flow_op", "_flow_ms", "_flow_position", "_flow_key", "_flow_events"
STAGED = (
    Column(Text(), False, False, OPERATION),
    Column(BigInt(), True, False, EVENT_MS),
    Column(Text(), True, False, POSITION),
    Column(Text(), False, False, KEY),
    Column(BigInt(), False, False, EVENTS),
)
"""Beside the columns of the row: the operation, when it happened, where in the source's log, the row's key as JSON, and how
many changes of this key were in the micro-batch, of which this is the last."""
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
