"""What the tests of stream declarations share: connections, parts, and a stream that is changed a little."""

from __future__ import annotations

from typing import Annotated, Any

from ematix_flow import (
    Aggregation,
    BigInt,
    DeltaLocalConnection,
    Join,
    KafkaConnection,
    KinesisConnection,
    ObjectStoreLocalConnection,
    PostgresConnection,
    PubSubConnection,
    RabbitMQConnection,
    Source,
    StateStore,
    Text,
    Window,
    ematix,
    pk,
    udaf,
    udf,
)
from ematix_flow.declare.streams.options import StreamOptions, stream_from
from ematix_flow.declare.streams.spec import StreamSpec
from ematix_flow.foundation.location import caller

KAFKA = KafkaConnection("kafka_prod", bootstrap_servers="localhost:9092", group_id="ematix-flow")
WAREHOUSE = PostgresConnection("warehouse", url="postgres://localhost/wh")
LAKE = ObjectStoreLocalConnection("lake", path="data/lake", format="parquet")
CSV = ObjectStoreLocalConnection("drop", path="data/drop", format="csv")
RABBIT = RabbitMQConnection("rabbit", amqp_url="amqp://guest@localhost/%2f")
PUBSUB = PubSubConnection("pubsub", project_id="p")
KINESIS = KinesisConnection("kinesis", stream_name="s")
DELTA = DeltaLocalConnection("delta", path="data/delta")
STATE = StateStore(kind="postgres", url="postgres://localhost/state")
TUMBLING = Window(kind="tumbling", duration_ms=60_000, aggregations=[Aggregation(agg="count", as_="n")])
SESSION = Window(kind="session", gap_ms=1_000, max_session_duration_ms=5_000, group_by=("user_id",),
                 aggregations=[Aggregation(agg="count", as_="n")])  # fmt: skip
JOIN = Join("orders", "payments", ("id",), ("id",), time_window_ms=1_000)
TWO = [Source(KAFKA, "orders"), Source(KAFKA, "payments")]


@ematix.table(schema="mirror")
class Customers:
    id: Annotated[BigInt, pk()]
    name: Text | None


def function(name: str) -> Any:
    return udf(args=("Int64",), returns="Int64", name=name)(lambda numbers: numbers)


@udaf(args=("Int64",), state=("Int64",), returns="Int64", name="vwap")
class Vwap:
    """Does nothing, in the right shape."""

    def update_batch(self, numbers: Any) -> None: ...
    def merge_batch(self, states: Any) -> None: ...
    def evaluate(self) -> Any: ...
    def state(self) -> Any: ...


def stream(**given: Any) -> StreamSpec:
    """Kafka's `events` into a table, unless it is said otherwise."""
    said = {"name": "events_to_pg", "source": KAFKA, "source_query": "events", "target": WAREHOUSE}
    if "target" not in given and "targets" not in given:
        said["target_table"] = ("public", "events")
    said |= given
    where = caller()
    return stream_from(
        StreamOptions.parse({key: value for key, value in said.items() if value is not ...}, where), where
    )


def only_target(**given: Any) -> Any:
    (found,) = stream(**given).targets
    return found
