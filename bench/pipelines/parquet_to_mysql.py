"""Parquet into MySQL."""

from tables import Orders

from ematix_flow import MySQLConnection, ObjectStoreLocalConnection, ematix, register_connection

register_connection(ObjectStoreLocalConnection(name="origin", path="${BENCH_SOURCE}", format="parquet"))
register_connection(MySQLConnection(name="goal", url="${BENCH_TARGET}"))


@ematix.pipeline(target=Orders, source_connection="origin", target_connection="goal", mode="append")
def parquet_to_mysql():
    return "SELECT * FROM raw.orders"
