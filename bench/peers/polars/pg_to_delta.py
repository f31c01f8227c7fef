"""Polars reads through connectorx and writes a Delta table through delta-rs."""

import os

import polars

rows = polars.read_database_uri(
    "SELECT * FROM lineitem", os.environ["BENCH_SOURCE"], partition_on="l_orderkey", partition_num=os.cpu_count()
)
rows.write_delta(f"{os.environ['BENCH_TARGET']}/bench/lineitem")
