"""connectorx reads in as many parts as there are cores, pyarrow writes."""

import os
from pathlib import Path

import connectorx
import pyarrow.parquet

rows = connectorx.read_sql(
    os.environ["BENCH_SOURCE"],
    "SELECT * FROM lineitem",
    return_type="arrow",
    partition_on="l_orderkey",
    partition_num=os.cpu_count(),
)
folder = Path(os.environ["BENCH_TARGET"]) / "bench" / "lineitem"
folder.mkdir(parents=True)
pyarrow.parquet.write_table(rows, folder / "rows.parquet")
