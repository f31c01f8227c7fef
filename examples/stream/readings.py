"""A stream that loads files from a folder into DuckDB as they arrive; a Kafka topic can be read in the same way."""

from ematix_flow import Annotated, Double, Text, TimestampTZ, ematix, pk


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
class Readings:
    sensor: Annotated[Text, pk()]
    at: Annotated[TimestampTZ, pk()]
    celsius: Double


@ematix.streaming_pipeline(
    source=incoming,
    source_query="readings",
    target=Readings,
    target_connection=warehouse,
    mode="merge",
    transform_sql="SELECT sensor, CAST(at AS TIMESTAMP) AS at, round((fahrenheit - 32) / 1.8, 1) AS celsius FROM source",
    checkpoint="checkpoints/readings",
)
def readings():
    pass
