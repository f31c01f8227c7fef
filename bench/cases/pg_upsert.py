"""Parquet merged into PostgreSQL, a fifth of the rows changed."""

from __future__ import annotations

from bench.contestants import cold_and_warm, stock
from bench.ends import ParquetSource, PostgresTarget
from bench.model import Case, Goal
from bench.tables import CHANGED_ORDERS, ORDERS

CASE = Case(
    name="pg_upsert",
    title="upsert into PostgreSQL, 20 % changed",
    table=CHANGED_ORDERS,
    source=ParquetSource(),
    target=PostgresTarget(base=ORDERS),
    contestants=(
        *cold_and_warm("pg_upsert"),
        stock("pg_upsert", "postgres"),
    ),
    goals=(Goal(at_least=3),),
    note="The target already holds every row; a fifth of them changed.",
)
