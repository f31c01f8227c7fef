"""PostgreSQL → Delta Lake."""

from __future__ import annotations

from bench.contestants import cold_and_warm, polars, stock
from bench.ends import DeltaTarget, PostgresSource
from bench.model import Case, Goal
from bench.tables import LINEITEM

CASE = Case(
    name="pg_to_delta",
    title="PostgreSQL → Delta Lake",
    table=LINEITEM,
    source=PostgresSource(),
    target=DeltaTarget(),
    contestants=(
        *cold_and_warm("pg_to_delta"),
        stock("pg_to_delta", "postgres", "delta"),
        polars("pg_to_delta"),
    ),
    goals=(Goal(at_least=2),),
)
