"""One PostgreSQL database → another, truncate."""

from __future__ import annotations

from bench.contestants import original, product, stock
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
        product("pg_to_pg_truncate"),
        original("pg_to_pg_truncate"),
        stock("pg_to_pg_truncate", "postgres"),
    ),
    goals=(Goal(peer="original", at_least=3),),
    note="The target already holds every row.",
)
