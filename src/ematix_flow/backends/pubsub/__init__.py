"""Google Pub/Sub: read through a spool, acknowledged after the commit; written with ordering keys."""

from __future__ import annotations

from ematix_flow.backends.pubsub.sink import PubSubSink
from ematix_flow.backends.pubsub.source import PubSubSource
from ematix_flow.contract.backend import Backend, TaskResources
from ematix_flow.contract.stream import AT_LEAST_ONCE
from ematix_flow.declare.connections import PubSubConnection
from ematix_flow.spool.source import checkpoint_roots

backend = Backend(
    name="pubsub",
    title="Google Pub/Sub",
    connection_types=(PubSubConnection,),
    published_by="the service's acknowledgement",
    extra="pubsub",
    tasks_reading=TaskResources(folders=checkpoint_roots),
    tasks_writing=TaskResources(("google.cloud.pubsub_v1",)),
    stream_source=PubSubSource,
    broker_sink=PubSubSink,
    stream_delivery=AT_LEAST_ONCE,
    notes=(
        "messages are kept in a spool below the checkpoint, and acknowledged after the target's commit",
        "a redelivery is recognised by its message id",
        "the key of a sent message is its ordering key",
        "the attribute ematix-message-id of a sent message stays the same when a batch is sent again",
    ),
)
