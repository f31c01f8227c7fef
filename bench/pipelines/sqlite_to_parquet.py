"""A SQLite file into a folder of Parquet."""

from tables import Orders

from ematix_flow import ObjectStoreLocalConnection, SQLiteConnection, ematix, register_connection

register_connection(SQLiteConnection(name="origin", path="${BENCH_SOURCE}"))
register_connection(ObjectStoreLocalConnection(name="goal", path="${BENCH_TARGET}", format="parquet"))


@ematix.pipeline(target=Orders, source_connection="origin", target_connection="goal", mode="append")
def sqlite_to_parquet():
    return "SELECT * FROM orders"
