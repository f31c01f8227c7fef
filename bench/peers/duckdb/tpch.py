"""The 22 queries of TPC-H on DuckDB."""

import os
import sys

import duckdb

sys.path.insert(0, os.environ["BENCH_TPCH_CODE"])
from tpch_rounds import run_queries  # found beside the queries

client = duckdb.connect()
for table in os.environ["BENCH_TPCH_TABLES"].split(","):
    client.execute(f"CREATE VIEW {table} AS SELECT * FROM read_parquet('{os.environ['BENCH_TPCH']}/{table}.parquet')")
run_queries(lambda query: client.execute(query).fetchall())
