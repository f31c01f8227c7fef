"""Every version of a few hundred customers, from SQLite into a Delta table."""

import os

from tables import CustomerDim

from ematix_flow import DeltaLocalConnection, SQLiteConnection, ematix, register_connection

register_connection(SQLiteConnection(name="origin", path="${BENCH_SOURCE}"))
register_connection(DeltaLocalConnection(name="goal", path="${BENCH_TARGET}"))


@ematix.pipeline(
    target=CustomerDim,
    source_connection="origin",
    target_connection="goal",
    mode="scd2",
    event_timestamp_column="updated_at",
)
def scd2_to_delta():
    return f"SELECT customer_id, email, name, city, updated_at FROM {os.environ['BENCH_SOURCE_TABLE']}"
