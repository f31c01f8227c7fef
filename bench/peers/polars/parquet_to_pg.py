"""Polars reads Parquet and writes through ADBC."""

import os

import polars

rows = polars.read_parquet(os.environ["BENCH_SOURCE_FILE"])
rows.write_database("bench.orders", os.environ["BENCH_TARGET"], engine="adbc")
