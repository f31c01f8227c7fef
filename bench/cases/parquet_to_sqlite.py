"""Parquet → SQLite, append."""

from __future__ import annotations

from dataclasses import replace

from bench.contestants import cold_and_warm, stock
from bench.ends import ParquetSource, SqliteTarget
from bench.model import Case, Goal
from bench.tables import ORDERS

CASE = Case(
    name="parquet_to_sqlite",
    title="Parquet → SQLite, append",
    table=ORDERS,
    source=ParquetSource(),
    target=SqliteTarget(),
    contestants=(
        *cold_and_warm("parquet_to_sqlite"),
        replace(stock("parquet_to_sqlite", "sqlite"), note="days stored as milliseconds since 1970"),
    ),
    goals=(Goal(at_least=1.2),),
)
