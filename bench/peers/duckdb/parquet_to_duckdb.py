"""DuckDB takes a Parquet file into one of its tables."""

import os

import duckdb

with duckdb.connect(os.environ["BENCH_TARGET"]) as client:
    client.execute(f"INSERT INTO bench.orders SELECT * FROM read_parquet('{os.environ['BENCH_SOURCE_FILE']}')")
