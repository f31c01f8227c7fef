"""One PostgreSQL database → another, truncate."""

from __future__ import annotations

from bench.contestants import cold_and_warm, original, stock
from bench.ends import PostgresSource, PostgresTarget
from bench.model import Case, Goal
from bench.tables import ORDERS

CASE = Case(
    name="pg_to_pg_truncate",
    title="PostgreSQL → PostgreSQL, truncate",
    table=ORDERS,
    source=PostgresSource(),
    target=PostgresTarget(base=ORDERS),
    contestants=(
        *cold_and_warm("pg_to_pg_truncate"),
        original("pg_to_pg_truncate"),
        stock("pg_to_pg_truncate", "postgres"),
    ),
    goals=(Goal("original", at_least=3),),
    note="The target already holds every row.",
)
