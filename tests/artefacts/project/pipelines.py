"""The declarations of the old artefacts: batch loads into DuckDB, SQLite, Delta and Parquet, and two streams.

All paths are relative to the folder of the project.
"""

from ematix_flow import (
    Aggregation,
    Annotated,
    BigInt,
    DeltaLocalConnection,
    DuckDBConnection,
    ObjectStoreLocalConnection,
    SQLiteConnection,
    Text,
    Timestamp,
    Watermark,
    Window,
    ematix,
    pk,
)

shop = SQLiteConnection("shop", path="shop.db")
mart = DuckDBConnection("mart", path="mart.duckdb")
lake = DeltaLocalConnection("lake", path="lake")
files = ObjectStoreLocalConnection("files", path="files", format="parquet")
incoming = ObjectStoreLocalConnection("incoming", path="incoming", format="json_lines")

ORDERS = "SELECT id, customer, amount FROM raw_orders"
CUSTOMERS = "SELECT id, city, updated_at FROM raw_customers"


@ematix.table(schema="main")
class Orders:
    id: Annotated[BigInt, pk()]
    customer: BigInt
    amount: BigInt


@ematix.table(schema="main")
class Customers:
    id: Annotated[BigInt, pk()]
    city: Text
    updated_at: Timestamp


@ematix.table(schema="main")
class Cities:
    id: Annotated[BigInt, pk()]
    city: Text


@ematix.table(schema="main")
class History:
    id: Annotated[BigInt, pk()]
    city: Text
    updated_at: Timestamp


@ematix.pipeline(source_connection=shop, target=Orders, target_connection=mart, mode="append",
                 incremental=True, watermark_column="id")  # fmt: skip
def orders_to_duckdb():
    return ORDERS


@ematix.pipeline(source_connection=shop, target=Orders, target_connection=files, mode="append",
                 incremental=True, watermark_column="id")  # fmt: skip
def orders_to_parquet():
    return ORDERS


@ematix.pipeline(source_connection=shop, target=Orders, target_connection=shop, mode="merge")
def orders_to_sqlite():
    return ORDERS


@ematix.pipeline(source_connection=shop, target=Customers, target_connection=mart, mode="merge")
def customers_to_duckdb():
    return CUSTOMERS


@ematix.pipeline(source_connection=shop, target=Customers, target_connection=lake, mode="merge")
def customers_to_delta():
    return CUSTOMERS


@ematix.pipeline(source_connection=shop, target=Cities, target_connection=mart, mode="scd2")
def cities_to_duckdb():
    return "SELECT id, city FROM raw_customers"


@ematix.pipeline(source_connection=shop, target=History, target_connection=lake, mode="scd2",
                 event_timestamp_column="updated_at")  # fmt: skip
def history_to_delta():
    return CUSTOMERS


@ematix.streaming_pipeline(
    source=incoming,
    source_query="readings",
    target=shop,
    target_table=("main", "per_minute"),
    window=Window(
        kind="tumbling",
        duration_ms=60_000,
        group_by=("sensor",),
        event_time_column="at",
        aggregations=[Aggregation("count", "readings"), Aggregation("sum", "total", "value")],
    ),
    watermark=Watermark(source_idleness_ms=10**9),
    transform_on_error="dlq",
    checkpoint="checkpoints/per_minute",
)
def per_minute():
    """Sum the readings of every sensor and minute."""


@ematix.streaming_pipeline(
    source=incoming,
    source_query="events",
    target=lake,
    target_table=("main", "events"),
    checkpoint="checkpoints/events",
)
def events():
    """Append events to a Delta table."""
