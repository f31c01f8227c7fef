"""Parquet into PostgreSQL."""

from tables import Orders

from ematix_flow import ObjectStoreLocalConnection, PostgresConnection, ematix, register_connection

register_connection(ObjectStoreLocalConnection(name="origin", path="${BENCH_SOURCE}", format="parquet"))
register_connection(PostgresConnection(name="goal", url="${BENCH_TARGET}"))


@ematix.pipeline(target=Orders, source_connection="origin", target_connection="goal", mode="append")
def parquet_to_pg():
    return "SELECT * FROM raw.orders"
