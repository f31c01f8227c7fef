"""Writing to Kafka: at least once by Spark's own writer, or exactly once by transactions of our own producers."""

from __future__ import annotations

import os
import re
import secrets
from contextlib import closing
from typing import TYPE_CHECKING, Any

from ematix_flow.backends.kafka.client import KafkaClient, Part, load_confluent_kafka, parts_of
from ematix_flow.backends.kafka.errors import missing_topic, recognise_connector_error
from ematix_flow.backends.kafka.login import KafkaLogin
from ematix_flow.backends.kafka.transactions import (
    ANSWER,
    TransactionSettings,
    TransactionToken,
    committed_partitions,
    transaction_task,
)
from ematix_flow.contract.stream import BrokerJob, BrokerSink, Offsets, TransactionTokens
from ematix_flow.dataplane.spark_tasks import watched
from ematix_flow.dataplane.task_errors import carried_error_in
from ematix_flow.declare.connections import KafkaConnection
from ematix_flow.foundation.errors import PlanError, RunFailed
from ematix_flow.foundation.lazy_imports import f
from ematix_flow.messages.message_ids import COLUMNS, HEADER_BYTES, with_ids

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


BATCH_BYTES = 16_384  # the default of Kafka's client
_LARGEST_OF_SPARK, _LARGEST_OF_OURS = 1_048_576, 1_000_000
"""The default size limits of messages, in bytes, of Kafka's Java client and of librdkafka."""
_FRAME = 92
"""The most bytes that a message sent alone has beside its key, value and headers."""
_OLDER_WAY = "spark.sql.sources.useV1SourceList"
# Plan nodes that move rows between tasks; those that copy a small table to all tasks do not count.
_MOVES = re.compile(r"^[\s:+\-*()\d]*(?:Exchange|Coalesce|CartesianProduct)\b", re.MULTILINE)


class KafkaSink(BrokerSink, TransactionTokens):
    """The topics of one Kafka connection as targets."""

    def __init__(self, connection: KafkaConnection) -> None:
        self._connection = connection
        self._label = connection.resolved().label
        self._known: set[str] = set()
        """Topics that were seen in this cluster."""
        self._sizes: dict[str, int | None] = {}

    def check(self, place: str) -> None:
        """Raise a FlowError when the broker does not answer or the topic does not exist."""
        existing = self._topics()
        if place not in existing:
            raise missing_topic(place, existing, at=self._label)

    def send(self, job: BrokerJob, frame: DataFrame) -> int:
        """Send every row, wait for the brokers' acknowledgement, and return the number of rows that are there now."""
        return self._in_transactions(job, frame) if job.exactly_once else self._by_spark(job, frame)

    def _by_spark(self, job: BrokerJob, frame: DataFrame) -> int:
        from pyspark.sql import Observation

        seen = Observation()
        rows = watched(with_ids(frame.selectExpr(*COLUMNS), job)).observe(seen, f.count(f.lit(1)).alias("rows"))
        options = {**KafkaLogin.of(self._connection).for_spark(), "topic": job.place, "kafka.acks": "all"}
        options["kafka.batch.size"] = str(self._batch_size(job.place))
        _let_writes_be_observed(rows.sparkSession)
        try:
            rows.write.format("kafka").options(**options).mode("append").save()
        except Exception as exc:
            known = recognise_connector_error(str(exc), at=self._label)
            if known is None:
                raise
            raise known from exc
        return int(seen.get["rows"])

    def _in_transactions(self, job: BrokerJob, frame: DataFrame) -> int:
        """Send the rows of each source partition in one transaction, together with the offset that they reach."""
        load_confluent_kafka()
        rows = frame.selectExpr(*COLUMNS, "topic", "partition")
        _refuse_moved_partitions(rows)
        self._refuse_other_clusters(job)
        try:
            answers = rows.mapInArrow(transaction_task(self._delivery(job)), ANSWER).collect()
        except Exception as exc:
            known = carried_error_in(str(exc))
            if known is None:
                raise
            raise known from exc
        _refuse_divided_batches(answers)
        return sum(answer["rows"] for answer in answers)

    def _delivery(self, job: BrokerJob) -> TransactionSettings:
        return TransactionSettings(
            settings=KafkaLogin.of(self._connection).for_librdkafka(),
            label=self._label,
            stream=job.stream,
            writer=job.writer,
            batch=job.batch,
            place=job.place,
            group=group_of_tokens(job.group, job.writer),
            ends=job.ends,
            attempt=secrets.token_hex(6),
            driver=os.getpid(),
        )

    def _refuse_other_clusters(self, job: BrokerJob) -> None:
        """Raise PlanError for source topics of another cluster: a transaction commits offsets only in its own."""
        if set(job.ends) - self._known:
            self._known = self._topics()
        strange = sorted(set(job.ends) - self._known)
        if strange:
            raise PlanError(
                f"topic {strange[0]!r} is not in the cluster of {job.place!r}, and no transaction spans two clusters",
                hint='say delivery="at_least_once" for a stream from one cluster to another',
            )

    def max_message_bytes(self, place: str, *, exactly_once: bool = False) -> int | None:
        """Return the most bytes of key, value and headers together; None when this login may not query the limit."""
        most = self._largest(place)
        if most is None:
            return None
        return (
            min(most, _LARGEST_OF_OURS) - _FRAME
            if exactly_once
            else min(most, _LARGEST_OF_SPARK) - _FRAME - HEADER_BYTES
        )

    def committed_partitions(self, job: BrokerJob) -> list[Part]:
        """Return the source partitions whose rows of this batch an earlier attempt sent; that attempt is fenced."""
        load_confluent_kafka()
        return committed_partitions(self._delivery(job))

    def last_sent(self, group: str, writer: str, ends: Offsets) -> dict[Part, tuple[int, int]]:
        """Return the last batch of a writer in each partition of its source, and the offset that it reached.

        Brokers delete the offsets of an inactive group (`offsets.retention.minutes`): a missing token proves nothing.
        """
        with closing(KafkaClient(self._connection, group_of_tokens(group, writer))) as client:
            noted = client.committed_with_metadata(parts_of(ends))
        tokens = {part: (TransactionToken.read(note), offset) for part, (offset, note) in noted.items()}
        return {
            part: (token.batch, offset)
            for part, (token, offset) in tokens.items()
            if token is not None and token.writer == writer
        }

    def writers(self, group: str) -> list[str]:
        """Return the writers whose tokens the cluster holds for streams that read with this group."""
        with closing(KafkaClient(self._connection)) as client:
            names = client.groups()
        before = group_of_tokens(group, "")
        return [name.removeprefix(before) for name in names if name.startswith(before)]

    def _batch_size(self, topic: str) -> int:
        """Return the producer's batch size for a topic.

        Kafka's client splits a batch of several messages that is too large, and then no longer waits for the parts:
        messages that the broker refuses would be lost without an error.
        """
        most = self._largest(topic)
        return BATCH_BYTES if most is None else min(BATCH_BYTES, most // 2)

    def _largest(self, topic: str) -> int | None:
        if topic not in self._sizes:
            with closing(KafkaClient(self._connection)) as client:
                self._sizes[topic] = client.max_message_bytes(topic)
        return self._sizes[topic]

    def _topics(self) -> set[str]:
        with closing(KafkaClient(self._connection)) as client:
            return set(client.topics())


def group_of_tokens(group: str | None, writer: str) -> str:
    """Return a group for tokens alone: another program that commits to the same group would overwrite the tokens."""
    return f"{group or 'ematix-flow'}/{writer}"


def _let_writes_be_observed(spark: SparkSession) -> None:
    """Make Spark write to Kafka by its V2 API: the preferred V1 API never reports observed metrics, so `get` blocks.

    Files are still read by the V1 API, because only that one has the name of a row's file.
    """
    older = [name for name in str(spark.conf.get(_OLDER_WAY)).split(",") if name != "kafka"]
    spark.conf.set(_OLDER_WAY, ",".join(older))


def _refuse_moved_partitions(rows: DataFrame) -> None:
    """Raise PlanError if the plan moves rows: a partition in several tasks would need several transactions."""
    plan = str(rows.sparkSession.sql("EXPLAIN SELECT * FROM {rows}", rows=rows).collect()[0][0])
    if _MOVES.search(plan):
        raise PlanError(
            "exactly-once delivery needs every message where it was read, and the transform moves rows between tasks",
            hint='leave GROUP BY, ORDER BY, DISTINCT and joins of large tables out, or say delivery="at_least_once"',
        )


def _refuse_divided_batches(answers: list[Any]) -> None:
    parts = [(answer["topic"], answer["partition"]) for answer in answers]
    divided = sorted({part for part in parts if parts.count(part) > 1})
    if divided:
        topic, number = divided[0]
        raise RunFailed(
            f"the rows of {topic}-{number} were sent by several tasks, so that they are not one transaction",
            hint='say delivery="at_least_once" for this stream',
        )
