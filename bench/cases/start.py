"""From the start of the process to the end of a tiny load."""

from __future__ import annotations

from bench.contestants import cold_and_warm, on_sail, stock
from bench.ends import ParquetTarget, SqliteSource
from bench.model import SAIL, WARM, Case, Goal
from bench.tables import TINY

_COLD, _WARM = cold_and_warm("start", warmups=5)

CASE = Case(
    name="start",
    title="tiny load, SQLite → Parquet",
    table=TINY,
    source=SqliteSource(),
    target=ParquetTarget(),
    contestants=(_COLD, _WARM, on_sail(_COLD), stock("start", "sqlite")),
    goals=(
        Goal(at_least=2.5),
        Goal(at_least=12, who=WARM),
        Goal(at_most_seconds=0.8, who=WARM),
        Goal(at_most_seconds=1.5, who=SAIL),
    ),
    note="Engine sail finds no Java on its PATH.",
)
