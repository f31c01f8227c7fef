"""DuckDB → Parquet."""

from __future__ import annotations

from bench.contestants import cold_and_warm, duckdb, stock
from bench.ends import DuckdbSource, ParquetTarget
from bench.model import Case, Goal
from bench.tables import ORDERS

CASE = Case(
    name="duckdb_to_parquet",
    title="DuckDB → Parquet",
    table=ORDERS,
    source=DuckdbSource(),
    target=ParquetTarget(),
    contestants=(
        *cold_and_warm("duckdb_to_parquet"),
        stock("duckdb_to_parquet", "duckdb"),
        duckdb("duckdb_to_parquet"),
    ),
    goals=(Goal(at_least=2),),
)
