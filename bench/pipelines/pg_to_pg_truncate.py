"""One PostgreSQL database into another, replacing what is there."""

from tables import KeyedOrders

from ematix_flow import PostgresConnection, ematix, register_connection

register_connection(PostgresConnection(name="origin", url="${BENCH_SOURCE}"))
register_connection(PostgresConnection(name="goal", url="${BENCH_TARGET}"))


@ematix.pipeline(target=KeyedOrders, source_connection="origin", target_connection="goal", mode="truncate")
def pg_to_pg_truncate():
    return "SELECT * FROM orders"
