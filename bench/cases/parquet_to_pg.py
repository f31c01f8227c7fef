"""Parquet → PostgreSQL, append."""

from __future__ import annotations

from bench.contestants import cold_and_warm, polars, stock
from bench.ends import ParquetSource, PostgresTarget
from bench.model import WARM, Case, Goal
from bench.tables import ORDERS

CASE = Case(
    name="parquet_to_pg",
    title="Parquet → PostgreSQL, append",
    table=ORDERS,
    source=ParquetSource(),
    target=PostgresTarget(),
    contestants=(
        *cold_and_warm("parquet_to_pg"),
        stock("parquet_to_pg", "postgres"),
        polars("parquet_to_pg"),
    ),
    goals=(Goal(at_least=3), Goal(at_least=4, who=WARM)),
)
