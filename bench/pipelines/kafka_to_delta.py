"""Kafka into a Delta table, as a stream."""

import os

from tables import EVENT_FIELDS, Events

from ematix_flow import DeltaLocalConnection, KafkaConnection, ematix, register_connection

register_connection(KafkaConnection(name="origin", bootstrap_servers="${BENCH_SOURCE}"))
register_connection(DeltaLocalConnection(name="goal", path="${BENCH_TARGET}"))


@ematix.streaming_pipeline(
    source="origin",
    source_query=os.environ["BENCH_SOURCE_TOPIC"],
    fields=EVENT_FIELDS,
    target=Events,
    target_connection="goal",
    mode="append",
    checkpoint=f"{os.environ['BENCH_RUN']}/checkpoint",
)
def kafka_to_delta():
    pass
