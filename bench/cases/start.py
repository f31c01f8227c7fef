"""From the start of the process to the end of a tiny load."""

from __future__ import annotations

from bench.contestants import product, stock
from bench.ends import ParquetTarget, SqliteSource
from bench.model import Case, Goal
from bench.tables import TINY

CASE = Case(
    name="start",
    title="tiny run, SQLite → Parquet",
    table=TINY,
    source=SqliteSource(),
    target=ParquetTarget(),
    contestants=(product("start"), stock("start", "sqlite")),
    goals=(Goal(at_least=2.5),),
)
