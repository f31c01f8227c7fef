"""Polars reads through connectorx and writes Parquet."""

import os
from pathlib import Path

import polars

rows = polars.read_database_uri(
    "SELECT * FROM lineitem", os.environ["BENCH_SOURCE"], partition_on="l_orderkey", partition_num=os.cpu_count()
)
folder = Path(os.environ["BENCH_TARGET"]) / "bench" / "lineitem"
folder.mkdir(parents=True)
rows.write_parquet(folder / "rows.parquet")
