"""PostgreSQL → Parquet."""

from __future__ import annotations

from bench.contestants import cold_and_warm, connectorx, dlt, duckdb, polars, stock
from bench.ends import ParquetTarget, PostgresSource
from bench.model import WARM, Case, Goal
from bench.tables import LINEITEM

CASE = Case(
    name="pg_to_parquet",
    title="PostgreSQL → Parquet",
    table=LINEITEM,
    source=PostgresSource(),
    target=ParquetTarget(),
    contestants=(
        *cold_and_warm("pg_to_parquet"),
        stock("pg_to_parquet", "postgres"),
        connectorx("pg_to_parquet"),
        dlt("pg_to_parquet"),
        polars("pg_to_parquet"),
        duckdb("pg_to_parquet", environment="duckdb_postgres"),
    ),
    goals=(
        Goal(at_least=2.2),
        Goal(at_least=4, who=WARM),
        Goal("connectorx", at_least=0.85, who=WARM),
        Goal("dlt", at_least=1.0, who=WARM),
    ),
)
