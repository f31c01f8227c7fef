"""Parquet → DuckDB, append."""

from __future__ import annotations

from dataclasses import replace

from bench.contestants import cold_and_warm, duckdb, stock
from bench.ends import DuckdbTarget, ParquetSource
from bench.model import Case, Goal
from bench.tables import ORDERS

# JDBC writes some 3,000 rows a second here: the full size would take the better part of an hour for three runs.
_STOCK = replace(stock("parquet_to_duckdb", "duckdb"), stop_after=120)

CASE = Case(
    name="parquet_to_duckdb",
    title="Parquet → DuckDB, append",
    table=ORDERS,
    source=ParquetSource(),
    target=DuckdbTarget(),
    contestants=(*cold_and_warm("parquet_to_duckdb"), _STOCK, duckdb("parquet_to_duckdb")),
    goals=(Goal(at_least=20),),
    note="Stock PySpark is stopped after two minutes.",
)
