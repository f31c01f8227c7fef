"""Five million rows each way; the environment says where."""

from __future__ import annotations

import os
from typing import Annotated, Any

from ematix_flow import (
    BigInt,
    DeltaLocalConnection,
    Numeric,
    ObjectStoreLocalConnection,
    PostgresConnection,
    Text,
    TimestampTZ,
    ematix,
    pk,
    register_connection,
)

register_connection(PostgresConnection(name="big_db", url=os.environ["SCALE_POSTGRES"]))
register_connection(DeltaLocalConnection(name="big_lake", path=os.environ["SCALE_LAKE"]))
register_connection(ObjectStoreLocalConnection(name="big_files", path=os.environ["SCALE_FILES"], format="parquet"))


@ematix.table(schema="big")
class Events:
    """Five million of these."""

    id: Annotated[BigInt, pk()]
    name: Text
    amount: Numeric[12, 2]
    at: TimestampTZ


@ematix.pipeline(target=Events, source_connection="big_db", target_connection="big_lake", mode="append")
def postgres_to_delta(conn: Any) -> str:
    """Read in parallel, one Delta commit."""
    return "SELECT id, name, amount, at FROM raw.events"


@ematix.pipeline(target=Events, source_connection="big_files", target_connection="big_db", mode="append")
def parquet_to_postgres(conn: Any) -> str:
    """Copy in parallel, one transaction."""
    return "SELECT id, name, amount, at FROM raw.events"
