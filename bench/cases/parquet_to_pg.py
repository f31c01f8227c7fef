"""Parquet → PostgreSQL, append."""

from __future__ import annotations

from bench.contestants import polars, product, stock
from bench.ends import ParquetSource, PostgresTarget
from bench.model import Case, Goal
from bench.tables import ORDERS

CASE = Case(
    name="parquet_to_pg",
    title="Parquet → PostgreSQL, append",
    table=ORDERS,
    source=ParquetSource(),
    target=PostgresTarget(),
    contestants=(
        product("parquet_to_pg"),
        stock("parquet_to_pg", "postgres"),
        polars("parquet_to_pg"),
    ),
    goals=(Goal(at_least=3),),
)
