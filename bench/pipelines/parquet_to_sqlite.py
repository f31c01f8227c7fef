"""Parquet into a SQLite file."""

from tables import Orders

from ematix_flow import ObjectStoreLocalConnection, SQLiteConnection, ematix, register_connection

register_connection(ObjectStoreLocalConnection(name="origin", path="${BENCH_SOURCE}", format="parquet"))
register_connection(SQLiteConnection(name="goal", path="${BENCH_TARGET}"))


@ematix.pipeline(target=Orders, source_connection="origin", target_connection="goal", mode="append")
def parquet_to_sqlite():
    return "SELECT * FROM raw.orders"
