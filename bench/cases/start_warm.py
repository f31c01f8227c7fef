"""The tiny load again, while the product's engine is already running."""

from __future__ import annotations

from dataclasses import replace

from bench.cases import start
from bench.contestants import product, stock
from bench.model import Goal

_WARM = replace(
    product("start_on_spark"), opens=("{bin}/flow", "engine", "start"), closes=("{bin}/flow", "engine", "stop")
)

CASE = replace(
    start.CASE,
    name="start_warm",
    title="tiny run through Spark on a warm engine",
    is_warm=True,
    contestants=(_WARM, stock("start", "sqlite")),
    goals=(Goal(at_most_seconds=1.0), Goal(at_least=8)),
    note="`flow engine start` ran before; stock PySpark has no such thing and starts cold. "
    "The CPU seconds of the engine's own process are not part of ours.",
)
