"""A CSV file of a few thousand orders into a DuckDB file."""

from tables import ShopOrders

from ematix_flow import DuckDBConnection, ObjectStoreLocalConnection, ematix, register_connection

register_connection(ObjectStoreLocalConnection(name="origin", path="${BENCH_SOURCE}", format="csv"))
register_connection(DuckDBConnection(name="goal", path="${BENCH_TARGET}"))


@ematix.pipeline(target=ShopOrders, source_connection="origin", target_connection="goal", mode="append")
def csv_to_duckdb():
    return "SELECT order_id, customer_id, ordered_at, status, amount FROM raw.shop_orders"
