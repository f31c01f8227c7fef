"""Amazon Kinesis as stream source and target; shards are read as partitions, parents before their children."""

from __future__ import annotations

from ematix_flow.backends.kinesis.sink import KinesisSink
from ematix_flow.backends.kinesis.source import KinesisSource
from ematix_flow.contract.backend import Backend, TaskResources
from ematix_flow.contract.stream import AT_LEAST_ONCE
from ematix_flow.declare.connections import KinesisConnection

backend = Backend(
    name="kinesis",
    title="Amazon Kinesis",
    connection_types=(KinesisConnection,),
    published_by="the service's acknowledgement of every record",
    extra="kinesis",
    tasks_reading=TaskResources(("boto3",)),
    tasks_writing=TaskResources(("boto3",)),
    stream_source=KinesisSource,
    broker_sink=KinesisSink,
    stream_delivery=AT_LEAST_ONCE,
    notes=(
        "every record is fetched twice: once to see how far a batch goes, once to read it",
        "a shard is read to its end before the shards that took its place",
        "records have no headers, and sequence numbers are too long for `offset`: `message_id` is shard:sequence",
        "a stream stops when Kinesis has dropped what it has not read",
    ),
)
