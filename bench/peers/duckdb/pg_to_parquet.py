"""DuckDB reads PostgreSQL by its own extension and writes Parquet."""

import os
from pathlib import Path

import duckdb
from duckdb_extensions import import_extension

folder = Path(os.environ["BENCH_TARGET"]) / "bench" / "lineitem"
folder.mkdir(parents=True)
with duckdb.connect(config={"extension_directory": os.environ["BENCH_RUN"]}) as client:
    import_extension("postgres_scanner", con=client)
    client.execute("LOAD postgres_scanner")
    client.execute(f"ATTACH '{os.environ['BENCH_SOURCE']}' AS origin (TYPE postgres, READ_ONLY)")
    client.execute(f"COPY (SELECT * FROM origin.public.lineitem) TO '{folder}/rows.parquet' (FORMAT parquet)")
