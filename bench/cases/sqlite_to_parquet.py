"""SQLite → Parquet."""

from __future__ import annotations

from dataclasses import replace

from bench.contestants import cold_and_warm, stock
from bench.ends import ParquetTarget, SqliteSource
from bench.model import Case, Goal
from bench.tables import ORDERS

CASE = Case(
    name="sqlite_to_parquet",
    title="SQLite → Parquet",
    table=ORDERS,
    source=SqliteSource(),
    target=ParquetTarget(),
    contestants=(
        *cold_and_warm("sqlite_to_parquet"),
        replace(stock("sqlite_to_parquet", "sqlite"), note="its BIGINT columns are DECIMAL(20,0)"),
    ),
    goals=(Goal(at_least=1.2),),
)
