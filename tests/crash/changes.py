"""The mirror that crash tests run in a process of its own; the environment says where to."""

from __future__ import annotations

import os

from ematix_flow import (
    CDC,
    Annotated,
    BigInt,
    DeltaLocalConnection,
    KafkaConnection,
    PostgresConnection,
    Text,
    ematix,
    pk,
)

BROKER, TOPIC = os.environ["CRASH_SOURCE"].split("|")
TO, TARGET_URL, SCHEMA = os.environ["CRASH_TARGET"].split("|")
_TARGETS = {
    "postgres": lambda: PostgresConnection(name="here", url=TARGET_URL),
    "delta": lambda: DeltaLocalConnection(name="here", path=TARGET_URL),
}


@ematix.table(schema=SCHEMA)
class Customers:
    """Rows that follow their source."""

    id: Annotated[BigInt, pk()]
    name: Text


@ematix.streaming_pipeline(
    source=KafkaConnection(name="there", bootstrap_servers=BROKER, group_id="crash"), source_query=TOPIC,
    target=Customers, target_connection=_TARGETS[TO](), cdc=CDC(), max_rows_per_batch=400,
)  # fmt: skip
def mirror() -> None:
    """Every change of the source."""
