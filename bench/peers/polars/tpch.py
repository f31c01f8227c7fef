"""The 22 queries of TPC-H on Polars, by its SQL."""

import os
import sys

import polars

sys.path.insert(0, os.environ["BENCH_TPCH_CODE"])
from tpch_rounds import run_queries  # found beside the queries

tables = os.environ["BENCH_TPCH_TABLES"].split(",")
context = polars.SQLContext(
    {name: polars.scan_parquet(f"{os.environ['BENCH_TPCH']}/{name}.parquet") for name in tables}
)
run_queries(lambda query: context.execute(query, eager=True).rows())
