"""The streams that crash tests run in a process of their own; the environment says from where, and where to."""

from __future__ import annotations

import os

from ematix_flow import (
    BigInt,
    DeltaLocalConnection,
    KafkaConnection,
    ObjectStoreLocalConnection,
    PostgresConnection,
    RabbitMQConnection,
    ematix,
)

FROM, SOURCE_URL, PLACE = os.environ["CRASH_SOURCE"].split("|")
TO, TARGET_URL, TARGET = os.environ["CRASH_TARGET"].split("|")
_SOURCES = {
    "kafka": lambda: KafkaConnection(name="there", bootstrap_servers=SOURCE_URL, group_id="crash"),
    "rabbitmq": lambda: RabbitMQConnection(name="there", amqp_url=SOURCE_URL),
    "files": lambda: ObjectStoreLocalConnection(name="there", path=SOURCE_URL, format="parquet"),
}
_TARGETS = {
    "postgres": lambda: PostgresConnection(name="here", url=TARGET_URL),
    "delta": lambda: DeltaLocalConnection(name="here", path=TARGET_URL),
    "kafka": lambda: KafkaConnection(name="here", bootstrap_servers=TARGET_URL),
}


@ematix.table(schema=TARGET if TO != "kafka" else "public")
class Numbers:
    """Rows without a key: a doubled row would show."""

    n: BigInt


_TARGET = {"target": Numbers, "target_connection": _TARGETS[TO]()}
if TO == "kafka":
    _TARGET = {"target": _TARGETS[TO](), "target_topic": TARGET, "delivery": "exactly_once"}


@ematix.streaming_pipeline(
    source=_SOURCES[FROM](), source_query=PLACE, **_TARGET, max_rows_per_batch=400, transform_sql="SELECT n FROM source"
)
def numbers() -> None:
    """Every number of the source."""
