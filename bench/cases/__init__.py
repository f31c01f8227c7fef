"""Every case by name, in the order of the page; a module here has a CASE, or several CASES."""

from __future__ import annotations

from importlib import import_module

from bench.model import Case

_ORDER = (
    "help",
    "start",
    "start_csv",
    "csv_to_duckdb",
    "scd2_to_delta",
    "preview",
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
    "kafka_to_delta",
    "kafka_to_pg",
    "stream_idle",
    "stream_latency",
    "scaling",
    "tpch",
)
_MODULES = [import_module(f"bench.cases.{name}") for name in _ORDER]
CASES: dict[str, Case] = {
    case.name: case for module in _MODULES for case in getattr(module, "CASES", None) or (module.CASE,)
}
