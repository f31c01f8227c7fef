"""PostgreSQL → Parquet."""

from __future__ import annotations

from bench.contestants import connectorx, dlt, duckdb, polars, product, stock
from bench.ends import ParquetTarget, PostgresSource
from bench.model import Case, Goal
from bench.tables import LINEITEM

CASE = Case(
    name="pg_to_parquet",
    title="PostgreSQL → Parquet",
    table=LINEITEM,
    source=PostgresSource(),
    target=ParquetTarget(),
    contestants=(
        product("pg_to_parquet"),
        stock("pg_to_parquet", "postgres"),
        connectorx("pg_to_parquet"),
        dlt("pg_to_parquet"),
        polars("pg_to_parquet"),
        duckdb("pg_to_parquet", environment="duckdb_postgres"),
    ),
    goals=(
        Goal(at_least=2.4),
        Goal(peer="connectorx", at_least=0.85),
        Goal(peer="dlt", at_least=1.0),
    ),
)
