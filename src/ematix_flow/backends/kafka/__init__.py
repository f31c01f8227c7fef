"""Kafka as stream source and target, by Spark's own connector; exactly once from Kafka to Kafka, by transactions."""

from __future__ import annotations

from ematix_flow.backends.kafka.dead_letters import KafkaDeadLetterTopic
from ematix_flow.backends.kafka.listener import KafkaListener
from ematix_flow.backends.kafka.msk import jars_for
from ematix_flow.backends.kafka.sink import KafkaSink
from ematix_flow.backends.kafka.source import KafkaSource
from ematix_flow.contract.backend import Backend, TaskResources
from ematix_flow.contract.stream import EXACTLY_ONCE
from ematix_flow.declare.connections import KafkaConnection

backend = Backend(
    name="kafka",
    title="Kafka",
    connection_types=(KafkaConnection,),
    published_by="the brokers' acknowledgement, or one transaction per partition that was read",
    jars=("kafka",),
    jars_for=jars_for,
    extra="kafka",
    tasks_writing=TaskResources(("confluent_kafka",)),
    stream_source=KafkaSource,
    broker_sink=KafkaSink,
    dead_letter_topic=KafkaDeadLetterTopic,
    listener=KafkaListener,
    stream_delivery=EXACTLY_ONCE,
    notes=(
        "exactly-once from Kafka to the same cluster, for readers of committed messages, when the stream asks for it",
        "at-least-once from every other source",
        "a stream stops when the topic has dropped what it has not read",
    ),
)
