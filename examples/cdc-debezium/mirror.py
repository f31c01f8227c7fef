"""A stream that applies change data in Debezium's format to a table in DuckDB."""

from ematix_flow import CDC, Annotated, BigInt, Text, TimestampTZ, ematix, pk


@ematix.connection
class incoming:
    kind = "object_store_local"
    path = "incoming"
    format = "json_lines"


@ematix.connection
class warehouse:
    kind = "duckdb"
    path = "warehouse.duckdb"


@ematix.table(schema="main")
class Customers:
    id: Annotated[BigInt, pk()]
    name: Text
    city: Text | None
    changed_at: TimestampTZ | None


@ematix.streaming_pipeline(
    source=incoming,
    source_query="customers",
    target=Customers,
    target_connection=warehouse,
    cdc=CDC(envelope="debezium", delete_mode="soft", soft_delete_column="deleted_at"),
    checkpoint="checkpoints/mirror",
)
def mirror():
    pass
