"""The steps of a run and of a micro-batch, in order: their names, their labels, and what each does.

The clock of a run, progress lines, the run log and the diagrams of ARCHITECTURE.md use these names.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    """One step: its name, the label while it works, and what it does, for the diagram."""

    name: str
    label: str
    does: str
    sets_rows_aside: bool = False
    """Whether rows that fail in this step can become dead letters."""


RUN_STEPS = (
    Step("plan", "planning", "call the function, inspect, choose path and lane"),
    Step("start", "starting Spark", "start or join Spark, if needed"),
    Step("ensure", "preparing the table", "apply DDL; token, watermark, recovery"),
    Step("read", "reading", "read the rows in parallel"),
    Step("stage", "loading", "write them beside the target"),
    Step("check", "checking the rows", "evaluate the checks on the stage"),
    Step("publish", "publishing", "rows, token, watermark at once"),
    Step("settle", "writing the history", "close the history, drop the stage"),
    Step("transform", "transforming", "run the post-load transforms"),
)
MICRO_BATCH_STEPS = (
    Step("decode", "decoding", "payloads to rows, files to rows", sets_rows_aside=True),
    Step("transform", "transforming", "SQL, functions, lookups", sets_rows_aside=True),
    Step("process", "processing", "windows, joins, change data", sets_rows_aside=True),
    Step("fit", "fitting", "shape and types of the table", sets_rows_aside=True),
    Step("stage", "staging", "all targets, invisible", sets_rows_aside=True),
    Step("publish", "publishing", "token = batch number, per target"),
    Step("settle", "settling", "close the history, drop the stage"),
    Step("commit", "committing", "checkpoint, then offsets of the broker"),
)
