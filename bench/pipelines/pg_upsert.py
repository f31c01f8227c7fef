"""Parquet merged into a PostgreSQL table that already holds the rows of yesterday."""

from tables import KeyedOrders

from ematix_flow import ObjectStoreLocalConnection, PostgresConnection, ematix, register_connection

register_connection(ObjectStoreLocalConnection(name="origin", path="${BENCH_SOURCE}", format="parquet"))
register_connection(PostgresConnection(name="goal", url="${BENCH_TARGET}"))


@ematix.pipeline(target=KeyedOrders, source_connection="origin", target_connection="goal", mode="merge")
def pg_upsert():
    return "SELECT * FROM raw.changed_orders"
