"""A DuckDB file into a folder of Parquet."""

from tables import Orders

from ematix_flow import DuckDBConnection, ObjectStoreLocalConnection, ematix, register_connection

register_connection(DuckDBConnection(name="origin", path="${BENCH_SOURCE}"))
register_connection(ObjectStoreLocalConnection(name="goal", path="${BENCH_TARGET}", format="parquet"))


@ematix.pipeline(target=Orders, source_connection="origin", target_connection="goal", mode="append")
def duckdb_to_parquet():
    return "SELECT * FROM orders"
