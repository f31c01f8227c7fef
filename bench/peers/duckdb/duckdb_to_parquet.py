"""DuckDB writes one of its tables as Parquet."""

import os
from pathlib import Path

import duckdb

folder = Path(os.environ["BENCH_TARGET"]) / "bench" / "orders"
folder.mkdir(parents=True)
with duckdb.connect(os.environ["BENCH_SOURCE"], read_only=True) as client:
    client.execute(f"COPY orders TO '{folder}/rows.parquet' (FORMAT parquet)")
