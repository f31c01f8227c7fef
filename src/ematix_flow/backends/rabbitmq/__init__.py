"""RabbitMQ: read through a spool, acknowledged after the commit; written with publisher confirms."""

from __future__ import annotations

from ematix_flow.backends.rabbitmq.receiver import listener
from ematix_flow.backends.rabbitmq.sink import RabbitMQSink
from ematix_flow.backends.rabbitmq.source import RabbitMQSource
from ematix_flow.contract.backend import Backend, TaskResources
from ematix_flow.contract.stream import AT_LEAST_ONCE
from ematix_flow.declare.connections import RabbitMQConnection
from ematix_flow.spool.source import checkpoint_roots

backend = Backend(
    name="rabbitmq",
    title="RabbitMQ",
    connection_types=(RabbitMQConnection,),
    published_by="publisher confirms",
    extra="rabbitmq",
    tasks_reading=TaskResources(folders=checkpoint_roots),
    tasks_writing=TaskResources(("pika",)),
    stream_source=RabbitMQSource,
    broker_sink=RabbitMQSink,
    listener=listener,
    stream_delivery=AT_LEAST_ONCE,
    notes=(
        "messages are kept in a spool below the checkpoint, and acknowledged after the target's commit",
        "a redelivery is recognised by message_id and content; messages without message_id are at-least-once",
        "sent messages are persistent and carry a message_id that stays the same when a batch is sent again",
    ),
)
