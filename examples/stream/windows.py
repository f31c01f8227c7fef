"""A second stream over the same files: the maximum temperature per sensor and minute."""

from readings import incoming, warehouse

from ematix_flow import Aggregation, Window, ematix


@ematix.streaming_pipeline(
    source=incoming,
    source_query="readings",
    target=warehouse,
    target_table=("main", "per_minute"),
    transform_sql="SELECT sensor, (fahrenheit - 32) / 1.8 AS celsius, CAST(at AS TIMESTAMP) AS at FROM source",
    window=Window(
        kind="tumbling",
        duration_ms=60_000,
        group_by=("sensor",),
        event_time_column="at",
        aggregations=[
            Aggregation(agg="count", as_="readings"),
            Aggregation(agg="max", column="celsius", as_="warmest"),
        ],
    ),
    checkpoint="checkpoints/per_minute",
)
def per_minute():
    pass
