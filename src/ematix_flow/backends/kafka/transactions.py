"""Exactly once into Kafka: inside a task, the rows of one partition and its end offset in one transaction."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ematix_flow.backends.kafka.client import ClientErrorLog, confluent_kafka
from ematix_flow.backends.kafka.errors import error_of, translate
from ematix_flow.contract.stream import Offsets
from ematix_flow.dataplane.arrow_values import row_batch
from ematix_flow.dataplane.spark_tasks import attempt_number
from ematix_flow.dataplane.task_errors import staging_task
from ematix_flow.foundation import fault
from ematix_flow.foundation.errors import FlowError, PlanError, RunFailed
from ematix_flow.foundation.lazy_imports import pc

ANSWER = "topic STRING, partition BIGINT, rows BIGINT, repeated BIGINT"
PATIENCE_SECONDS = 30.0
# The brokers' default maximum is 15 minutes. Until a transaction ends, or its stream restarts, readers of committed
# messages wait behind it.
LIFE_MILLISECONDS = 600_000
_TRIES = 3


@dataclass(frozen=True)
class TransactionSettings:
    """The settings with which tasks send a batch."""

    settings: Mapping[str, Any] = field(repr=False)
    label: str
    stream: str
    writer: str
    batch: int
    place: str
    group: str
    ends: Offsets
    attempt: str
    """A random id, new whenever a batch is sent."""
    driver: int

    def end_of(self, topic: str, number: int) -> int:
        """Return the end offset of the batch in a partition of its source; raise RunFailed where there is none."""
        try:
            return int(self.ends[topic][str(number)])
        except (KeyError, TypeError):
            raise RunFailed(
                f"batch {self.batch} has rows of {topic}-{number}, and no end there",
                hint='say delivery="at_least_once" when a stream reads from something else than Kafka',
            ) from None


@dataclass(frozen=True)
class TransactionToken:
    """The metadata beside a committed offset: the writer, batch, attempt and task of its transaction."""

    writer: str
    batch: int
    attempt: str
    task: int

    def __str__(self) -> str:
        return json.dumps([self.writer, self.batch, self.attempt, self.task], ensure_ascii=False)

    @classmethod
    def read(cls, text: str | None) -> TransactionToken | None:
        """Return the token in an offset's metadata; None where another program wrote it."""
        try:
            writer, batch, attempt, task = json.loads(text or "")
            return cls(str(writer), int(batch), str(attempt), int(task))
        except (ValueError, TypeError):
            return None


def transaction_task(delivery: TransactionSettings) -> Callable[[Any], Iterator[Any]]:
    """Return the function that runs in each task."""
    return staging_task(partial(_deliver, delivery), partial(translate, at=delivery.label))


def committed_partitions(delivery: TransactionSettings) -> list[tuple[str, int]]:
    """Return the partitions whose rows of this batch are committed; attempts without a commit are fenced."""
    partitions = []
    for topic, number in [(topic, int(number)) for topic, parts in delivery.ends.items() for number in parts]:
        with _Transaction(delivery, topic, number) as transaction:
            if transaction.is_committed():
                partitions.append((topic, number))
    return partitions


def _deliver(delivery: TransactionSettings, batches: Iterator[Any]) -> Iterator[Any]:
    filled = (batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    if first is None:
        return
    topic, number = _partition_of(first)
    with _Transaction(delivery, topic, number) as transaction:
        is_there = transaction.is_committed()
        rows = 0
        for batch in _chained(first, filled):
            _refuse_others(batch, topic, number)
            rows += batch.num_rows
            if not is_there:
                transaction.send(batch)
                fault.point("mid_stage", victim=delivery.driver)
        if not is_there:
            transaction.commit()
            fault.point("between_commits", victim=delivery.driver)
    yield row_batch({"topic": topic, "partition": number, "rows": rows, "repeated": int(is_there)})


def _chained(first: Any, rest: Iterator[Any]) -> Iterator[Any]:
    yield first
    yield from rest


def _partition_of(batch: Any) -> tuple[str, int]:
    return str(batch.column("topic")[0].as_py()), int(batch.column("partition")[0].as_py())


def _refuse_others(batch: Any, topic: str, number: int) -> None:
    """Raise PlanError for rows of another partition: a task can put only one partition into its transaction."""
    topics, numbers = pc.unique(batch.column("topic")), pc.unique(batch.column("partition"))
    if topics.to_pylist() != [topic] or numbers.to_pylist() != [number]:
        raise PlanError(
            f"a task has rows of {topic}-{number} and of other partitions; exactly-once delivery needs them apart",
            hint='leave out of the transform what brings rows together, or say delivery="at_least_once"',
        )


class _Transaction:
    """The transactional producer of one source partition; opening it fences the partition's earlier producer."""

    def __init__(self, delivery: TransactionSettings, topic: str, number: int) -> None:
        self._delivery, self._topic, self._number = delivery, topic, number
        self._end = delivery.end_of(topic, number)
        self._token = TransactionToken(delivery.writer, delivery.batch, delivery.attempt, _task())
        self._errors = ClientErrorLog()
        self._refused: Any = None
        self._open = False
        shared = {**delivery.settings, "error_cb": self._errors}
        self._producer = confluent_kafka.Producer(
            {
                **shared,
                "transactional.id": f"{delivery.stream}>{delivery.place}<{topic}-{number}",
                "transaction.timeout.ms": LIFE_MILLISECONDS,
                "partitioner": "murmur2_random",  # the same partition for a key as Java clients choose
                "linger.ms": 20,
                "queue.buffering.max.messages": 500_000,
            }
        )
        self._consumer = confluent_kafka.Consumer({**shared, "group.id": delivery.group, "enable.auto.commit": False})

    def __enter__(self) -> _Transaction:
        self._repeated(lambda: self._producer.init_transactions(PATIENCE_SECONDS))
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None and self._open:
            with suppress(confluent_kafka.KafkaException):  # the next start aborts the transaction anyway
                self._producer.abort_transaction(PATIENCE_SECONDS)
        self._consumer.close()

    def is_committed(self) -> bool:
        """Return whether this batch or a later one is committed here; older attempts are fenced by then."""
        partitions = [confluent_kafka.TopicPartition(self._topic, self._number)]
        (committed,) = self._repeated(lambda: self._consumer.committed(partitions, timeout=PATIENCE_SECONDS))
        if committed.error is not None:
            raise translate(confluent_kafka.KafkaException(committed.error), at=self._delivery.label)
        token = TransactionToken.read(committed.metadata)
        if token is None or token.writer != self._token.writer or token.batch < self._token.batch:
            return False
        if token.attempt == self._token.attempt and token.task != self._token.task:
            raise RunFailed(
                f"the rows of {self._topic}-{self._number} are in several tasks, so that they are not one transaction",
                hint='say delivery="at_least_once" for this stream',
            )
        if token.batch == self._token.batch and committed.offset != self._end:
            raise RunFailed(
                f"batch {token.batch} was sent up to {self._topic}-{self._number}@{committed.offset}, and now ends at {self._end}",
                hint=f"the checkpoint was changed: flow doctor checkpoint {self._delivery.stream}",
            )
        return True

    def send(self, batch: Any) -> None:
        """Add the rows of a batch to the transaction."""
        if not self._open:
            self._repeated(self._producer.begin_transaction)
            self._open = True
        keys, values, headers = (batch.column(name).to_pylist() for name in ("key", "value", "headers"))
        for key, value, header in zip(keys, values, headers, strict=True):
            pairs = [(item["key"], item["value"]) for item in header] if header else None
            self._produce(key, value, pairs)
        self._producer.poll(0)
        if self._refused is not None:
            raise translate(confluent_kafka.KafkaException(self._refused), at=self._delivery.label)
        if fault.is_armed("mid_stage"):
            self._producer.flush(PATIENCE_SECONDS)  # the test needs them on the broker

    def commit(self) -> None:
        """Commit rows and offset atomically."""
        position = confluent_kafka.TopicPartition(self._topic, self._number, self._end, str(self._token))
        group = self._consumer.consumer_group_metadata()
        self._repeated(lambda: self._producer.send_offsets_to_transaction([position], group, PATIENCE_SECONDS))
        if fault.is_armed("before_commit"):
            self._producer.flush(PATIENCE_SECONDS)
        fault.point("before_commit", victim=self._delivery.driver)
        self._repeated(lambda: self._producer.commit_transaction(PATIENCE_SECONDS))
        self._open = False

    def _produce(self, key: Any, value: Any, headers: Any) -> None:
        while True:
            try:
                self._producer.produce(
                    self._delivery.place, value=value, key=key, headers=headers, on_delivery=self._delivered
                )
                return
            except BufferError:  # the producer's queue is full
                self._producer.poll(0.5)

    def _delivered(self, error: Any, _message: Any) -> None:
        # A message dropped because another was refused reports an error, too: the first error is the reason.
        self._refused = self._refused or error

    def _repeated(self, ask: Callable[[], Any]) -> Any:
        """Return the result of a call; repeat it while the client reports a retriable error, three tries in all."""
        tries = _TRIES
        while True:
            try:
                return ask()
            except confluent_kafka.KafkaException as exc:
                error, tries = error_of(exc), tries - 1
                if not tries or error is None or not error.retriable():
                    raise self._translated(exc) from exc

    def _translated(self, exc: Exception) -> FlowError:
        self._producer.poll(0)  # runs the pending error callbacks
        refusal = self._refused or self._errors.refusal
        return translate(
            confluent_kafka.KafkaException(refusal) if refusal is not None else exc, at=self._delivery.label
        )


def _task() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    return int(context.partitionId()) if context is not None else attempt_number()
