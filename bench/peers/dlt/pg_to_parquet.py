"""dlt reads with connectorx and writes Parquet files."""

import os

import dlt
from dlt.sources.sql_database import sql_table

target = dlt.destinations.filesystem(bucket_url=f"file://{os.environ['BENCH_TARGET']}")
rows = sql_table(
    os.environ["BENCH_SOURCE"], table="lineitem", backend="connectorx", reflection_level="full_with_precision"
)
load = dlt.pipeline("bench", destination=target, dataset_name="bench")
load.run(rows, loader_file_format="parquet")
