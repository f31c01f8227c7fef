"""Writing Kafka: Spark's own writer at least once, or transactions of our own producers exactly once."""

from __future__ import annotations

import os
import re
import secrets
from typing import TYPE_CHECKING, Any

from ematix_flow.backends.kafka.client import KafkaClient, Part, load
from ematix_flow.backends.kafka.errors import missing_topic, recognised
from ematix_flow.backends.kafka.security import Access
from ematix_flow.backends.kafka.tokens import group_of_tokens
from ematix_flow.backends.kafka.transactions import ANSWER, Delivery, delivering, parts_sent
from ematix_flow.contract.stream import BrokerJob
from ematix_flow.families.carry import unpack
from ematix_flow.families.lake.staging import watched
from ematix_flow.families.message_ids import HEADER_BYTES, with_ids
from ematix_flow.foundation.errors import PlanError, RunFailed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ematix_flow.declare.connections import KafkaConnection

MESSAGE = (
    "CAST(key AS BINARY) AS key",
    "CAST(value AS BINARY) AS value",
    "CAST(headers AS ARRAY<STRUCT<key: STRING, value: BINARY>>) AS headers",
)
BATCH_BYTES = 16_384  # as Kafka's client has it
_LARGEST_OF_SPARK, _LARGEST_OF_OURS = 1_048_576, 1_000_000
"""What Kafka's client in Java and the one in C send at most, unless they are told otherwise."""
_FRAME = 92
"""What a message weighs beside its key, value and headers when it travels alone, at most."""
_OLDER_WAY = "spark.sql.sources.useV1SourceList"
# Nodes of a plan that move rows from task to task; those that copy a small table to all tasks do not.
_MOVES = re.compile(r"^[\s:+\-*()\d]*(?:Exchange|Coalesce|CartesianProduct)\b", re.MULTILINE)


class KafkaSink:
    """The topics of one Kafka connection as targets."""

    def __init__(self, connection: KafkaConnection) -> None:
        self._connection = connection
        self._label = connection.resolved().label
        self._known: set[str] = set()
        """Topics that were seen in this cluster."""
        self._sizes: dict[str, int | None] = {}

    def check(self, place: str) -> None:
        """Refuse a broker that does not answer, and a topic that is not there."""
        existing = self._topics()
        if place not in existing:
            raise missing_topic(place, existing, at=self._label)

    def send(self, job: BrokerJob, frame: DataFrame) -> int:
        """Send every row and wait until the brokers have them; rows that are there now."""
        return self._in_transactions(job, frame) if job.exactly_once else self._by_spark(job, frame)

    def _by_spark(self, job: BrokerJob, frame: DataFrame) -> int:
        from pyspark.sql import Observation
        from pyspark.sql.functions import count, lit

        seen = Observation()
        rows = watched(with_ids(frame.selectExpr(*MESSAGE), job)).observe(seen, count(lit(1)).alias("rows"))
        options = {**Access.of(self._connection).for_spark(), "topic": job.place, "kafka.acks": "all"}
        options["kafka.batch.size"] = str(self._batch_size(job.place))
        _let_writes_be_observed(rows.sparkSession)
        try:
            rows.write.format("kafka").options(**options).mode("append").save()
        except Exception as exc:
            known = recognised(str(exc), at=self._label)
            if known is None:
                raise
            raise known from exc
        return int(seen.get["rows"])

    def _in_transactions(self, job: BrokerJob, frame: DataFrame) -> int:
        """One transaction per partition of the source, with the rows and the offset that they come up to."""
        load()
        rows = frame.selectExpr(*MESSAGE, "topic", "partition")
        _refuse_moves(rows)
        self._refuse_other_clusters(job)
        try:
            answers = rows.mapInArrow(delivering(self._delivery(job)), ANSWER).collect()
        except Exception as exc:
            known = unpack(str(exc))
            if known is None:
                raise
            raise known from exc
        _refuse_divided(answers)
        return sum(answer["rows"] for answer in answers)

    def _delivery(self, job: BrokerJob) -> Delivery:
        return Delivery(
            settings=Access.of(self._connection).for_librdkafka(),
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
        """A transaction carries offsets of topics that its own cluster has, and of no others."""
        if set(job.ends) - self._known:
            self._known = self._topics()
        strange = sorted(set(job.ends) - self._known)
        if strange:
            raise PlanError(
                f"topic {strange[0]!r} is not in the cluster of {job.place!r}, and no transaction spans two clusters",
                hint='say delivery="at_least_once" for a stream from one cluster to another',
            )

    def most_bytes(self, place: str, *, exactly_once: bool = False) -> int | None:
        """What key, value and headers of a message may weigh together; None when this login may not ask."""
        most = self._largest(place)
        if most is None:
            return None
        return (
            min(most, _LARGEST_OF_OURS) - _FRAME
            if exactly_once
            else min(most, _LARGEST_OF_SPARK) - _FRAME - HEADER_BYTES
        )

    def parts_taken(self, job: BrokerJob) -> list[Part]:
        """The partitions of the source whose rows of this batch were sent by an earlier try, which is shut out."""
        load()
        return parts_sent(self._delivery(job))

    def _batch_size(self, topic: str) -> int:
        """Several messages that are together too large are divided by Kafka's client, which then no longer waits for them:
        what is refused of them would be lost in silence."""
        most = self._largest(topic)
        return BATCH_BYTES if most is None else min(BATCH_BYTES, most // 2)

    def _largest(self, topic: str) -> int | None:
        if topic not in self._sizes:
            client = KafkaClient(self._connection)
            try:
                self._sizes[topic] = client.most_bytes(topic)
            finally:
                client.close()
        return self._sizes[topic]

    def _topics(self) -> set[str]:
        client = KafkaClient(self._connection)
        try:
            return set(client.topics())
        finally:
            client.close()


def _let_writes_be_observed(spark: SparkSession) -> None:
    """Spark's older way to write Kafka, which it prefers, never tells what was observed, and whoever asks waits for ever.

    Files are still read in the older way, which alone knows the name of a row's file.
    """
    older = [name for name in str(spark.conf.get(_OLDER_WAY)).split(",") if name != "kafka"]
    spark.conf.set(_OLDER_WAY, ",".join(older))


def _refuse_moves(rows: DataFrame) -> None:
    """Before anything is sent: a partition whose rows are in several tasks would need several transactions."""
    plan = str(rows.sparkSession.sql("EXPLAIN SELECT * FROM {rows}", rows=rows).collect()[0][0])
    if _MOVES.search(plan):
        raise PlanError(
            "exactly-once delivery needs every message where it was read, and the transform moves rows between tasks",
            hint='leave GROUP BY, ORDER BY, DISTINCT and joins of large tables out, or say delivery="at_least_once"',
        )


def _refuse_divided(answers: list[Any]) -> None:
    parts = [(answer["topic"], answer["partition"]) for answer in answers]
    divided = sorted({part for part in parts if parts.count(part) > 1})
    if divided:
        topic, number = divided[0]
        raise RunFailed(
            f"the rows of {topic}-{number} were sent by several tasks, so that they are not one transaction",
            hint='say delivery="at_least_once" for this stream',
        )
