"""The tiny load when Spark has to carry it: what a start of our session costs."""

from __future__ import annotations

from dataclasses import replace

from bench.cases import start
from bench.contestants import on_sail, product, stock
from bench.model import SAIL, Goal

_OURS = product("start_on_spark")

CASE = replace(
    start.CASE,
    name="start_on_spark",
    title="tiny run through Spark, SQLite → Parquet",
    contestants=(_OURS, on_sail(_OURS), stock("start", "sqlite")),
    goals=(Goal(at_least=2.5), Goal(at_most_seconds=1.5, who=SAIL)),
    note="`force_lane` keeps the load from being done without an engine, as joins, dataframes and Delta would. "
    "Engine sail finds no Java on its PATH.",
)
