"""A client of a Kafka cluster, beside Spark's own: topics, bounds and timestamps of partitions, group offsets."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from ematix_flow.backends.kafka.errors import missing_topic, translate
from ematix_flow.backends.kafka.login import KafkaLogin
from ematix_flow.backends.kafka.topics import TopicSelection
from ematix_flow.contract.stream import Offsets
from ematix_flow.declare.connections import KafkaConnection
from ematix_flow.foundation.drivers import require_driver
from ematix_flow.foundation.errors import FlowError, MissingTable
from ematix_flow.foundation.lazy_imports import LazyModule

PATIENCE_SECONDS = 10.0
_ATTEMPT_SECONDS = 1.0
_TIMESTAMP_SECONDS = 3.0
_REFUSALS = ("_AUTHENTICATION", "_SSL", "SASL_AUTHENTICATION_FAILED", "UNSUPPORTED_SASL_MECHANISM")

_PACKAGE = {"needed_by": "Kafka", "package": "confluent-kafka", "extra": "kafka"}
confluent_kafka = LazyModule("confluent_kafka", **_PACKAGE)
load_confluent_kafka = partial(require_driver, "confluent_kafka", **_PACKAGE)

Part = tuple[str, int]
"""A topic and the number of one of its partitions."""


def group_of(connection: KafkaConnection, stream: str) -> str:
    """Return the consumer group in which tools see the progress of a stream."""
    return connection.resolved().group_id or f"ematix-flow-{stream}"


def parts_of(offsets: Offsets) -> dict[Part, int]:
    """Return the checkpoint's nested offsets as a flat mapping."""
    return {(topic, int(number)): int(at) for topic, parts in offsets.items() for number, at in parts.items()}


def offsets_of(parts: Mapping[Part, int]) -> dict[str, dict[str, int]]:
    """Return offsets in the checkpoint's nested form.

    >>> offsets_of({("orders", 0): 5, ("orders", 1): 7})
    {'orders': {'0': 5, '1': 7}}
    """
    offsets: dict[str, dict[str, int]] = {}
    for (topic, number), at in sorted(parts.items()):
        offsets.setdefault(topic, {})[str(number)] = at
    return offsets


class ClientErrorLog:
    """An error callback of librdkafka that holds the last error and the last refused login of a retrying client."""

    def __init__(self) -> None:
        self.refusal: Any = None
        self.last: Any = None

    def __call__(self, error: Any) -> None:
        self.last = error
        if error.name() in _REFUSALS:
            self.refusal = error


class KafkaClient:
    """A client of one connection's cluster, which connects at its first request."""

    def __init__(self, connection: KafkaConnection, group: str = "ematix-flow") -> None:
        self._access = KafkaLogin.of(connection)
        self._group = group
        self._errors = ClientErrorLog()
        self._admin: Any = None
        self._consumer: Any = None
        self.label = connection.resolved().label

    def topics(self) -> dict[str, list[int]]:
        """Return every topic that is not internal to Kafka, with its partitions."""
        topics = self._metadata().topics
        return {name: sorted(item.partitions) for name, item in topics.items() if not name.startswith("__")}

    def partitions(self, wanted: TopicSelection) -> list[Part]:
        """Return the partitions of these topics; raise MissingTable, with the nearest name, for a missing topic."""
        existing = self.topics()
        absent = [name for name in wanted.names if not existing.get(name)]
        if absent:
            raise missing_topic(absent[0], existing, at=self.label)
        chosen = wanted.among(existing)
        if not chosen:
            raise MissingTable(
                f"no topic at {self.label} matches {wanted.pattern!r}",
                hint=f"topics there: {', '.join(sorted(existing)[:10]) or 'none'}",
            )
        return [(name, number) for name in chosen for number in existing[name]]

    def ends(self, parts: Iterable[Part]) -> dict[Part, int]:
        """Return the offset of each partition's next message; of transactions, only committed ones count."""
        return self._listed(parts, lambda spec: spec.latest())

    def beginnings(self, parts: Iterable[Part]) -> dict[Part, int]:
        """Return the oldest offset of each partition that is still retained."""
        return self._listed(parts, lambda spec: spec.earliest())

    def at(self, parts: Iterable[Part], milliseconds: int) -> dict[Part, int]:
        """Return the offset of the first message at or after a point in time; the end of a partition that has none."""
        wanted = list(parts)
        times = self._times(wanted, milliseconds)
        open_ends = self.ends(part for part in wanted if times[part] < 0)
        return {part: open_ends[part] if offset < 0 else offset for part, offset in times.items()}

    def committed(self, parts: Iterable[Part]) -> dict[Part, int | None]:
        """Return the offsets that the consumer group has committed; None where it has none."""
        wanted = list(parts)
        offsets = self.committed_with_metadata(wanted)
        return {part: offsets[part][0] if part in offsets else None for part in wanted}

    def committed_with_metadata(self, parts: Iterable[Part]) -> dict[Part, tuple[int, str]]:
        """Return committed offsets with their metadata, only for partitions that have one."""
        partitions = [confluent_kafka.TopicPartition(topic, number) for topic, number in parts]
        if not partitions:
            return {}
        committed = self._request(lambda: self._group_consumer().committed(partitions, timeout=PATIENCE_SECONDS))
        return {
            (item.topic, item.partition): (item.offset, item.metadata or "") for item in committed if item.offset >= 0
        }

    def groups(self) -> list[str]:
        """Return the ids of all consumer groups in the cluster."""
        answer = self._request(lambda: self._admin_client().list_consumer_groups(request_timeout=PATIENCE_SECONDS))
        return [item.group_id for item in self._request(answer.result).valid]

    def commit(self, offsets: Mapping[Part, int]) -> None:
        """Commit offsets for the consumer group, without a subscription."""
        if not offsets:
            return
        partitions = [confluent_kafka.TopicPartition(topic, number, at) for (topic, number), at in offsets.items()]
        done = self._request(lambda: self._group_consumer().commit(offsets=partitions, asynchronous=False))
        failed = next((item.error for item in done or () if item.error is not None), None)
        if failed is not None:
            raise translate(confluent_kafka.KafkaException(failed), at=self.label)

    def drop_before(self, offsets: Mapping[Part, int]) -> None:
        """Delete the messages before these offsets."""
        if offsets:
            partitions = [confluent_kafka.TopicPartition(topic, number, at) for (topic, number), at in offsets.items()]
            for done in self._request(lambda: self._admin_client().delete_records(partitions)).values():
                self._request(done.result)

    def timestamps(self, offsets: Mapping[Part, int]) -> dict[Part, int]:
        """Return when the messages at these offsets were written, in milliseconds; slow partitions are left out."""
        if not offsets:
            return {}
        consumer, timestamps = self._group_consumer(), dict[Part, int]()
        deadline = time.monotonic() + _TIMESTAMP_SECONDS
        try:
            consumer.assign(
                [confluent_kafka.TopicPartition(topic, number, at) for (topic, number), at in offsets.items()]
            )
            while len(timestamps) < len(offsets) and time.monotonic() < deadline:
                message = consumer.poll(0.2)
                if message is None or message.error() is not None:
                    continue
                part = (message.topic(), message.partition())
                if part not in timestamps:
                    timestamps[part] = message.timestamp()[1]
                    consumer.pause([confluent_kafka.TopicPartition(*part)])
        except confluent_kafka.KafkaException as exc:
            raise translate(exc, at=self.label) from exc
        finally:
            consumer.unassign()
        return timestamps

    def max_message_bytes(self, topic: str) -> int | None:
        """Return `max.message.bytes` of a topic; None when this login may not query it."""
        from confluent_kafka import admin

        resources = [admin.ConfigResource("topic", topic)]  # type: ignore[attr-defined]  # missing from its stubs
        try:
            (future,) = self._admin_client().describe_configs(resources, request_timeout=PATIENCE_SECONDS).values()
            return int(future.result()["max.message.bytes"].value)
        except (confluent_kafka.KafkaException, KeyError):
            return None

    def close(self) -> None:
        """Close the sessions."""
        if self._consumer is not None:
            self._consumer.close()
        self._consumer = self._admin = None

    def _metadata(self) -> Any:
        """Return the cluster's metadata; raise a refused login at once, any other error after PATIENCE_SECONDS."""
        admin = self._admin_client()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return admin.list_topics(timeout=_ATTEMPT_SECONDS)
            except confluent_kafka.KafkaException as exc:
                admin.poll(0)  # runs the pending error callbacks
                if self._errors.refusal is not None or time.monotonic() > deadline:
                    raise self._translated(exc) from exc

    def _admin_client(self) -> Any:
        if self._admin is None:
            load_confluent_kafka()
            from confluent_kafka.admin import AdminClient

            self._admin = self._request(lambda: AdminClient(self._settings()))
        return self._admin

    def _group_consumer(self) -> Any:
        """Return a consumer that never subscribes, so that it takes no partition from other consumers."""
        if self._consumer is None:
            own = {
                "group.id": self._group,
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "earliest",
                "queued.min.messages": 1,
                "fetch.message.max.bytes": 1024,
            }
            self._consumer = self._request(lambda: confluent_kafka.Consumer({**self._settings(), **own}))
        return self._consumer

    def _settings(self) -> dict[str, Any]:
        return {**self._access.for_librdkafka(), "error_cb": self._errors}

    def _listed(self, parts: Iterable[Part], chosen: Any) -> dict[Part, int]:
        wanted = list(parts)
        if not wanted:
            return {}
        from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

        requests = {confluent_kafka.TopicPartition(topic, number): chosen(OffsetSpec) for topic, number in wanted}
        futures = self._request(
            lambda: self._admin_client().list_offsets(
                requests,
                isolation_level=confluent_kafka.IsolationLevel.READ_COMMITTED,
                request_timeout=PATIENCE_SECONDS,
            )
        )
        return {
            (part.topic, part.partition): int(self._request(future.result).offset) for part, future in futures.items()
        }

    def _times(self, parts: list[Part], milliseconds: int) -> dict[Part, int]:
        if not parts:
            return {}
        partitions = [confluent_kafka.TopicPartition(topic, number, milliseconds) for topic, number in parts]
        offsets = self._request(lambda: self._group_consumer().offsets_for_times(partitions, timeout=PATIENCE_SECONDS))
        return {(item.topic, item.partition): item.offset for item in offsets}

    def _request(self, ask: Any) -> Any:
        """Return the result of a client call, with its errors translated to FlowErrors."""
        try:
            return ask()
        except confluent_kafka.KafkaException as exc:
            raise self._translated(exc) from exc

    def _translated(self, exc: Exception) -> FlowError:
        refusal = self._errors.refusal
        return translate(exc if refusal is None else confluent_kafka.KafkaException(refusal), at=self.label)
