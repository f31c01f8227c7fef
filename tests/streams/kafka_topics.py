"""Topics of the test broker, by Kafka's own client: made, filled, read back and cut."""

from __future__ import annotations

import functools
import secrets
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.services.kafka import Kafka

SECONDS = 30.0


@functools.lru_cache(maxsize=1)
def admin(kafka: Kafka) -> AdminClient:
    """Somebody who may do everything; kept, because what it promises never comes when it has gone."""
    return AdminClient({"bootstrap.servers": kafka.open, "log_level": 0})


def new_topic(kafka: Kafka, *, partitions: int = 1, name: str | None = None, **settings: str) -> str:
    """A topic of its own for a test."""
    topic = name or f"t-{secrets.token_hex(5)}"
    client = admin(kafka)  # it has to outlive the answer
    made = client.create_topics([NewTopic(topic, partitions, 1, config=settings)])
    for done in made.values():
        done.result(SECONDS)
    deadline = time.monotonic() + SECONDS
    while len(admin(kafka).list_topics(timeout=5).topics.get(topic, _NONE).partitions) < partitions:
        assert time.monotonic() < deadline, f"{topic} does not come"
        time.sleep(0.05)
    return topic


class _None:
    partitions: Mapping[int, Any] = {}


_NONE: Any = _None()


def send(kafka: Kafka, topic: str, messages: Iterable[Mapping[str, Any]]) -> None:
    """Messages with value, and maybe key, headers, partition, timestamp."""
    producer = Producer({"bootstrap.servers": kafka.open, "linger.ms": 5, "partitioner": "murmur2_random"})
    failed: list[Any] = []
    for message in messages:
        producer.produce(topic, **message, on_delivery=lambda error, _: failed.append(error) if error else None)
        producer.poll(0)
    assert producer.flush(SECONDS) == 0
    assert failed == []


def everything(kafka: Kafka, topic: str, *, isolation: str = "read_committed") -> list[Any]:
    """Every message of a topic, read from beginning to end."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.open, "group.id": f"reader-{secrets.token_hex(4)}", "enable.auto.commit": False,
            "isolation.level": isolation, "enable.partition.eof": True, "auto.offset.reset": "earliest",
        }
    )  # fmt: skip
    parts = sorted(consumer.list_topics(topic, timeout=SECONDS).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, number, 0) for number in parts])
    found, ended = [], set[int]()
    deadline = time.monotonic() + SECONDS
    while len(ended) < len(parts):
        assert time.monotonic() < deadline, f"{topic} does not end"
        message = consumer.poll(0.5)
        if message is None:
            continue
        error = message.error()
        if error is None:
            found.append(message)
        elif error.code() == KafkaError._PARTITION_EOF:
            ended.add(message.partition())
    consumer.close()
    return found


def values(kafka: Kafka, topic: str, *, isolation: str = "read_committed") -> Counter[bytes]:
    """How often each value is in a topic."""
    return Counter(message.value() for message in everything(kafka, topic, isolation=isolation))


def group_offsets(kafka: Kafka, group: str) -> dict[str, int]:
    """What a group has committed, as Kafka's tools see it."""
    asked = [ConsumerGroupTopicPartitions(group)]
    (found,) = admin(kafka).list_consumer_group_offsets(asked).values()
    return {f"{item.topic}-{item.partition}": item.offset for item in found.result(SECONDS).topic_partitions}


def drop_before(kafka: Kafka, topic: str, partition: int, offset: int) -> None:
    """What retention does one day: the oldest messages are gone."""
    for done in admin(kafka).delete_records([TopicPartition(topic, partition, offset)]).values():
        done.result(SECONDS)
