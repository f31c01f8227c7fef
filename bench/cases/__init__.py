"""Every case by name, in the order of the page; a module here is a case when it has a CASE."""

from __future__ import annotations

from importlib import import_module

from bench.model import Case

_ORDER = (
    "help",
    "start",
    "start_csv",
    "start_warm",
    "pg_to_parquet",
    "pg_to_delta",
    "parquet_to_pg",
    "pg_upsert",
    "mysql_to_parquet",
    "parquet_to_mysql",
    "parquet_to_duckdb",
    "duckdb_to_parquet",
    "parquet_to_sqlite",
    "sqlite_to_parquet",
    "pg_to_pg_truncate",
    "pg_to_pg_merge",
    "tpch",
)
CASES: dict[str, Case] = {name: import_module(f"bench.cases.{name}").CASE for name in _ORDER}
