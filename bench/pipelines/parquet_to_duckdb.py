"""Parquet into a DuckDB file."""

from tables import Orders

from ematix_flow import DuckDBConnection, ObjectStoreLocalConnection, ematix, register_connection

register_connection(ObjectStoreLocalConnection(name="origin", path="${BENCH_SOURCE}", format="parquet"))
register_connection(DuckDBConnection(name="goal", path="${BENCH_TARGET}"))


@ematix.pipeline(target=Orders, source_connection="origin", target_connection="goal", mode="append")
def parquet_to_duckdb():
    return "SELECT * FROM raw.orders"
