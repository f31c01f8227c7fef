"""One PostgreSQL database → another, merge, a fifth of the rows changed."""

from __future__ import annotations

from bench.contestants import cold_and_warm, original, stock
from bench.ends import PostgresSource, PostgresTarget
from bench.model import Case, Goal
from bench.tables import CHANGED_ORDERS, ORDERS

CASE = Case(
    name="pg_to_pg_merge",
    title="PostgreSQL → PostgreSQL, merge",
    table=CHANGED_ORDERS,
    source=PostgresSource(),
    target=PostgresTarget(base=ORDERS),
    contestants=(
        *cold_and_warm("pg_to_pg_merge"),
        original("pg_to_pg_merge"),
        stock("pg_to_pg_merge", "postgres"),
    ),
    goals=(Goal("original", at_least=3),),
    note="The target already holds every row; a fifth of them changed.",
)
