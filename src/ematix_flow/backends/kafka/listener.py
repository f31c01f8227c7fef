"""A listener on Kafka topics in a consumer group, whose offsets are committed when messages are done."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing, suppress
from datetime import datetime, timezone
from typing import Any

from ematix_flow.backends.kafka.client import ClientErrorLog, KafkaClient, Part, confluent_kafka, group_of
from ematix_flow.backends.kafka.errors import translate
from ematix_flow.backends.kafka.login import KafkaLogin
from ematix_flow.backends.kafka.topics import TopicSelection
from ematix_flow.declare.connections import KafkaConnection
from ematix_flow.declare.message import Message
from ematix_flow.foundation.errors import FlowError


class KafkaListener:
    """A consumer in the connection's group, else in one named after the listener.

    It begins at the earliest message, as streams do, unless the connection has auto_offset_reset="latest".
    """

    def __init__(self, connection: KafkaConnection, query: str, name: str) -> None:
        resolved = connection.resolved()
        topics, self._label = TopicSelection.of(query), resolved.label
        with closing(KafkaClient(connection, group_of(connection, name))) as client:
            client.partitions(topics)  # raises with the nearest name where a topic does not exist
        self._errors = ClientErrorLog()
        self._ends: dict[Part, int] = {}
        self._consumer: Any = confluent_kafka.Consumer({
            **KafkaLogin.of(connection).for_librdkafka(),
            "group.id": group_of(connection, name),
            "auto.offset.reset": resolved.auto_offset_reset or "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "error_cb": self._errors,
        })  # fmt: skip
        self._consumer.subscribe([f"^(?:{topics.pattern})$"] if topics.pattern else list(topics.names))

    def receive(self, limit: int, seconds: float) -> Sequence[Message]:
        try:
            messages = self._consumer.consume(limit, seconds)
        except confluent_kafka.KafkaException as exc:
            raise self._translated(exc.args[0]) from exc
        if not messages and self._errors.last is not None:
            last, self._errors.last = self._errors.last, None
            raise self._translated(last)
        for item in messages:
            if item.error() is not None:
                raise self._translated(item.error())
        for item in messages:
            self._ends[item.topic(), item.partition()] = item.offset() + 1
        return [_message(item) for item in messages]

    def confirm(self) -> None:
        ends, self._ends = self._ends, {}
        if not ends:
            return
        wanted = [confluent_kafka.TopicPartition(topic, number, at) for (topic, number), at in ends.items()]
        try:
            self._consumer.commit(offsets=wanted, asynchronous=False)
        except confluent_kafka.KafkaException as exc:
            raise self._translated(exc.args[0]) from exc

    def close(self) -> None:
        with suppress(Exception):  # the broker may be gone
            self._consumer.close()

    def _translated(self, error: Any) -> FlowError:
        # Errors of messages and callbacks are values; `translate` takes exceptions.
        return translate(confluent_kafka.KafkaException(error), at=self._label)


def _message(item: Any) -> Message:
    """Return the message; its position contains the time, because a recreated topic counts from 0 again."""
    kind, at = item.timestamp()
    known = kind != confluent_kafka.TIMESTAMP_NOT_AVAILABLE
    value = item.value()
    return Message(
        value,
        f"{item.topic()}-{item.partition()}@{item.offset()}" + (f"/{at}" if known else ""),
        item.topic(),
        item.key(),
        tuple(item.headers() or ()),
        datetime.fromtimestamp(at / 1000, timezone.utc) if known else None,
        len(value or b""),
    )
