"""Streams with state that crash tests run in a process of their own; the environment says from where, and where to."""

from __future__ import annotations

import os

from ematix_flow import (
    Aggregation,
    Join,
    KafkaConnection,
    PostgresConnection,
    Source,
    StateStore,
    Watermark,
    Window,
    ematix,
)

BROKERS, LEFT, RIGHT = os.environ["CRASH_SOURCE"].split("|")
URL, SCHEMA = os.environ["CRASH_TARGET"].split("|")
there = KafkaConnection(name="there", bootstrap_servers=BROKERS, group_id="crash")
here = PostgresConnection(name="here", url=URL)
ALWAYS = Watermark(source_idleness_ms=10**9)
"""How long a test takes must not close anything."""


@ematix.streaming_pipeline(
    source=there,
    source_query=LEFT,
    target=here,
    target_table=(SCHEMA, "windows"),
    window=Window(
        kind="tumbling",
        duration_ms=100_000,
        aggregations=[Aggregation("count", "n"), Aggregation("sum", "total", "number")],
    ),
    watermark=ALWAYS,
    max_rows_per_batch=400,
)
def windows() -> None:
    """A hundred numbers, each a second after the one before, make a window."""


@ematix.streaming_pipeline(
    sources=[Source(there, LEFT), Source(there, RIGHT)],
    target=here,
    target_table=(SCHEMA, "pairs"),
    join=Join(LEFT, RIGHT, ("number",), ("number",), time_window_ms=5_000),
    state_store=StateStore(kind="postgres", url=URL, schema=SCHEMA),
    watermark=ALWAYS,
    max_rows_per_batch=400,
)
def pairs() -> None:
    """Every number meets its twin."""
