"""Kafka for notebooks: batches of a topic as Arrow, and Arrow batches into a topic."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any

from ematix_flow.backends.kafka.client import ClientErrorLog, KafkaClient, Part, confluent_kafka, load_confluent_kafka
from ematix_flow.backends.kafka.errors import missing_topic, translate
from ematix_flow.backends.kafka.login import KafkaLogin
from ematix_flow.backends.kafka.registry_payloads import KINDS, RegistryPayloads
from ematix_flow.backends.kafka.topics import TopicSelection
from ematix_flow.declare.connections import KafkaConnection
from ematix_flow.foundation.errors import ConfigError, DeclarationError, FlowError, Unreachable
from ematix_flow.foundation.lazy_imports import pa
from ematix_flow.foundation.names import did_you_mean
from ematix_flow.messages import arrow_batches
from ematix_flow.messages.notebook import (
    BATCH_BYTES,
    BATCH_SIZE,
    NotebookBackend,
    as_batch_iterator,
    positive_option,
)

BATCH_WINDOW_MS = 1_000
IDLE_TIMEOUT_MS = 5_000
_SEMANTICS = ("at_least_once", "exactly_once")
_GROUP_SECONDS = 30.0
_NEW_TOPIC_MS = 5_000
"""The time that a topic may stay unknown after the first request for it."""


class KafkaBackend(NotebookBackend):
    """A connection to one Kafka cluster; `KafkaBackend.open("localhost:9092", group_id="me")`."""

    def __init__(self, connection: KafkaConnection, *, is_exact: bool, transactional_id: str | None,
                 batch_size: int, batch_bytes: int, batch_window_ms: int, idle_timeout_ms: int) -> None:  # fmt: skip
        super().__init__(connection)
        self._is_exact, self._transactional_id = is_exact, transactional_id
        self._batch_size, self._batch_bytes = batch_size, batch_bytes
        self._window, self._idle = batch_window_ms / 1000, idle_timeout_ms / 1000
        self._access = KafkaLogin.of(connection)
        self._label = connection.resolved().label
        self._consumer: Any = None
        self._producer: Any = None
        self._schemas: RegistryPayloads | None = None
        self._errors = ClientErrorLog()
        self._seen: dict[Part, int] = {}
        self._ended: set[Part] = set()

    @classmethod
    def open(
        cls,
        bootstrap_servers: str,
        *,
        group_id: str | None = None,
        payload_format: str | None = None,
        schema_registry_url: str | None = None,
        delivery_semantics: str | None = None,
        transactional_id: str | None = None,
        sasl_plain_username: str | None = None,
        sasl_plain_password: str | None = None,
        sasl_scram_username: str | None = None,
        sasl_scram_password: str | None = None,
        sasl_scram_mechanism: str | None = None,
        tls_cert_path: str | None = None,
        tls_key_path: str | None = None,
        tls_ca_path: str | None = None,
        msk_iam_region: str | None = None,
        batch_size: int | None = None,
        batch_bytes: int | None = None,
        batch_window_ms: int | None = None,
        idle_timeout_ms: int | None = None,
    ) -> KafkaBackend:
        """Return the cluster at an address, without connecting; `ping()` does that."""
        load_confluent_kafka()
        connection = KafkaConnection(
            "notebook",
            bootstrap_servers=bootstrap_servers,
            group_id=group_id,
            payload_format=payload_format,
            schema_registry_url=schema_registry_url,
            sasl_plain_username=sasl_plain_username,
            sasl_plain_password=sasl_plain_password,
            sasl_scram_username=sasl_scram_username,
            sasl_scram_password=sasl_scram_password,
            sasl_scram_mechanism=sasl_scram_mechanism,
            msk_iam_region=msk_iam_region,
            tls_ca_path=tls_ca_path,
            tls_cert_path=tls_cert_path,
            tls_key_path=tls_key_path,
        )
        return cls(
            connection,
            is_exact=_is_exact(delivery_semantics, transactional_id),
            transactional_id=transactional_id,
            batch_size=positive_option("batch_size", batch_size, BATCH_SIZE),
            batch_bytes=positive_option("batch_bytes", batch_bytes, BATCH_BYTES),
            batch_window_ms=positive_option("batch_window_ms", batch_window_ms, BATCH_WINDOW_MS),
            idle_timeout_ms=positive_option("idle_timeout_ms", idle_timeout_ms, IDLE_TIMEOUT_MS),
        )

    @property
    def payload_format(self) -> str:
        """Return the payload format of the messages."""
        return self._connection.payload_format or "json"

    def ping(self) -> bool:
        """Return True when the brokers answer and accept this login; raise a FlowError otherwise."""
        with closing(KafkaClient(self._connection)) as client:
            client.topics()
        return True

    @as_batch_iterator
    def iter_arrow_stream(self, query: str) -> Iterator[Any]:
        """Yield batches of a topic, of several separated by commas, or of all that match a pattern.

        Reading begins after the group's committed offsets, and ends when nothing has come for `idle_timeout_ms`.
        """
        consumer = self._subscribed(TopicSelection.of(query))
        while True:
            messages = self._gathered(consumer)
            if not messages:
                return
            try:
                batch = self._decoded(messages)
            except FlowError:
                self._seek_back(consumer, messages)
                raise
            for message in messages:
                self._seen[message.topic(), message.partition()] = message.offset() + 1
            yield batch

    def write_arrow_stream(self, topic: str, batches: Iterable[Any]) -> int:
        """Send every row as a message, wait for the brokers, and return the count; exactly-once sends all or none."""
        producer = self._opened_producer()
        refused: list[Any] = []
        sent = 0
        try:
            if self._is_exact:
                producer.begin_transaction()
            for batch in batches:
                for key, value in self._encoded(topic, batch):
                    _produce(producer, topic, key, value, refused)
                    sent += 1
            if self._is_exact:
                producer.commit_transaction(_GROUP_SECONDS)
            else:
                producer.flush(_GROUP_SECONDS + 5)  # by then each message is delivered or timed out
        except BaseException as exc:
            self._give_up(producer)
            if not isinstance(exc, confluent_kafka.KafkaException):
                raise
            raise self._unsent(topic, confluent_kafka.KafkaException(refused[0]) if refused else exc) from exc
        if refused:
            raise self._unsent(topic, confluent_kafka.KafkaException(refused[0]))
        return sent

    def commit_offsets(self) -> None:
        """Commit every batch returned so far; later messages are read again next time."""
        if self._connection.group_id is None:
            raise ConfigError("there is no group to commit to", hint='KafkaBackend.open(…, group_id="ematix-flow")')
        if self._consumer is None or not self._seen:
            return
        partitions = [confluent_kafka.TopicPartition(topic, number, at) for (topic, number), at in self._seen.items()]
        try:
            self._consumer.commit(offsets=partitions, asynchronous=False)
        except confluent_kafka.KafkaException as exc:
            raise self._translated(exc) from exc
        self._seen.clear()

    def close(self) -> None:
        """Leave the group and close the sessions."""
        if self._consumer is not None:
            self._consumer.close()
        if self._producer is not None:
            self._producer.flush(_GROUP_SECONDS)
        self._consumer = self._producer = None

    def _subscribed(self, topics: TopicSelection) -> Any:
        """Return the consumer, subscribed to these topics as a member of the group."""
        with closing(KafkaClient(self._connection)) as client:
            names = sorted({name for name, _ in client.partitions(topics)})
        if self._consumer is None:
            self._consumer = confluent_kafka.Consumer(
                {
                    **self._access.for_librdkafka(),
                    "error_cb": self._errors,
                    "group.id": self._connection.group_id or f"ematix-flow-notebook-{secrets.token_hex(4)}",
                    "enable.auto.commit": False,
                    "enable.partition.eof": True,
                    "isolation.level": "read_committed",
                    "auto.offset.reset": self._connection.auto_offset_reset or "earliest",
                }
            )
        self._consumer.subscribe(names, on_assign=self._assigned)
        return self._consumer

    def _assigned(self, _consumer: Any, parts: Sequence[Any]) -> None:
        self._ended -= {(part.topic, part.partition) for part in parts}  # they restart at the group's offsets

    def _gathered(self, consumer: Any) -> list[Any]:
        """Return the next full batch, or the messages of its time window; an empty list after the idle timeout."""
        messages: list[Any] = []
        size, began = 0, 0.0
        quiet_since = time.monotonic()
        while len(messages) < self._batch_size and size < self._batch_bytes:
            polled = self._polled(consumer, min(1000, self._batch_size - len(messages)))
            messages += polled
            size += sum(len(message.value() or b"") + len(message.key() or b"") for message in polled)
            now = time.monotonic()
            if messages:
                began = began or now
                if now - began >= self._window:
                    break
            elif self._is_over(consumer, now - quiet_since):
                break
        return messages

    def _polled(self, consumer: Any, most: int) -> list[Any]:
        """Return the messages that have arrived, and record the partitions that are read to their end."""
        try:
            consumed = consumer.consume(most, timeout=0.1)
        except confluent_kafka.KafkaException as exc:
            raise self._translated(exc) from exc
        messages = []
        for item in consumed:
            part, error = (item.topic(), item.partition()), item.error()
            if error is None:
                self._ended.discard(part)
                messages.append(item)
            elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                self._ended.add(part)
            else:
                raise self._translated(confluent_kafka.KafkaException(error))
        if not messages and self._errors.refusal is not None:
            raise self._translated(confluent_kafka.KafkaException(self._errors.refusal))
        return messages

    def _seek_back(self, consumer: Any, messages: Sequence[Any]) -> None:
        """Seek back to the messages that could not be decoded, so that no later commit covers them."""
        first = {(message.topic(), message.partition()): message.offset() for message in reversed(messages)}
        for (topic, number), offset in first.items():
            consumer.seek(confluent_kafka.TopicPartition(topic, number, offset))

    def _is_over(self, consumer: Any, quiet: float) -> bool:
        """Return whether no message has come for the idle timeout.

        A partition that is not read to its end gets more time, and so does a group that still assigns its partitions;
        raise Unreachable where the former gets no message.
        """
        parts = {(part.topic, part.partition) for part in consumer.assignment()}
        if parts and parts <= self._ended:
            return quiet >= self._idle
        if quiet < max(self._idle, _GROUP_SECONDS):
            return False
        if parts:
            raise Unreachable(f"{self._label} has messages, and none came for {quiet:.0f} s", hint="try again")
        return True  # other members of the group have all the partitions

    def _decoded(self, messages: Sequence[Any]) -> Any:
        payloads = [message.value() for message in messages]
        places = [f"{message.topic()}-{message.partition()}@{message.offset()}" for message in messages]
        if self.payload_format == "raw_bytes":
            return _raw_batch(messages)
        if self.payload_format == "json":
            return arrow_batches.batch_from_json(payloads, places)
        return arrow_batches.batch_from_rows(self._opened_schemas().rows(KINDS[self.payload_format], payloads, places))

    def _encoded(self, topic: str, batch: Any) -> Iterable[tuple[bytes | None, bytes | None]]:
        if self.payload_format == "raw_bytes":
            return zip(*arrow_batches.raw_columns(batch), strict=True)
        if self.payload_format == "json":
            return ((None, value) for value in arrow_batches.batch_to_json(batch))
        messages = self._opened_schemas().messages(KINDS[self.payload_format], topic, batch)
        return ((None, value) for value in messages)

    def _opened_schemas(self) -> RegistryPayloads:
        self._schemas = self._schemas or RegistryPayloads.of(self._connection)
        return self._schemas

    def _opened_producer(self) -> Any:
        if self._producer is None:
            settings = {
                **self._access.for_librdkafka(),
                "error_cb": self._errors,
                "acks": "all",
                "partitioner": "murmur2_random",
                "message.timeout.ms": int(_GROUP_SECONDS * 1000),
                "topic.metadata.propagation.max.ms": _NEW_TOPIC_MS,
            }
            if self._is_exact:
                settings["transactional.id"] = self._transactional_id
            try:
                producer = confluent_kafka.Producer(settings)
                if self._is_exact:
                    producer.init_transactions(_GROUP_SECONDS)
            except confluent_kafka.KafkaException as exc:
                raise self._translated(exc) from exc
            self._producer = producer
        return self._producer

    def _give_up(self, producer: Any) -> None:
        if self._is_exact:
            try:
                producer.abort_transaction(_GROUP_SECONDS)
            except confluent_kafka.KafkaException:  # the brokers abort it after its timeout
                self._producer = None

    def _unsent(self, topic: str, exc: Exception) -> FlowError:
        """Return the error for unsent messages; a missing topic shows only as a timeout."""
        errors = confluent_kafka.KafkaError
        silent = (errors._MSG_TIMED_OUT, errors._UNKNOWN_TOPIC, errors.UNKNOWN_TOPIC_OR_PART)
        if exc.args[0].code() not in silent or self._errors.refusal is not None:
            return self._translated(exc)
        client = KafkaClient(self._connection)
        try:
            existing = client.topics()
        except FlowError as error:
            return error
        finally:
            client.close()
        return self._translated(exc) if topic in existing else missing_topic(topic, existing, at=self._label)

    def _translated(self, exc: Exception) -> FlowError:
        refusal = self._errors.refusal
        return translate(exc if refusal is None else confluent_kafka.KafkaException(refusal), at=self._label)


def _produce(producer: Any, topic: str, key: bytes | None, value: bytes | None, refused: list[Any]) -> None:
    def delivered(error: Any, _message: Any) -> None:
        if error is not None:
            refused.append(error)

    while True:
        try:
            producer.produce(topic, value=value, key=key, on_delivery=delivered)
            producer.poll(0)
            return
        except BufferError:  # the producer's queue is full
            producer.poll(0.5)


def _raw_batch(messages: Sequence[Any]) -> Any:
    columns = {
        "key": pa.array([message.key() for message in messages], pa.binary()),
        "value": pa.array([message.value() for message in messages], pa.binary()),
        "topic": pa.array([message.topic() for message in messages], pa.string()),
        "partition": pa.array([message.partition() for message in messages], pa.int32()),
        "offset": pa.array([message.offset() for message in messages], pa.int64()),
        "timestamp": pa.array([message.timestamp()[1] for message in messages], pa.timestamp("ms", "UTC")),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _is_exact(semantics: str | None, transactional_id: str | None) -> bool:
    delivery = (semantics or ("exactly_once" if transactional_id else "at_least_once")).replace("-", "_")
    if delivery not in _SEMANTICS:
        raise DeclarationError(
            f"delivery_semantics={semantics!r} is not known", hint=did_you_mean(delivery, _SEMANTICS)
        )
    if delivery == "exactly_once" and not transactional_id:
        raise DeclarationError(
            "exactly-once delivery needs a transactional_id",
            hint='transactional_id="my-notebook": a name that stays the same from start to start',
        )
    return delivery == "exactly_once"
