"""Reading Kafka: Spark's own connector for the messages, a client of our own for offsets, lag and what was lost."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from ematix_flow.backends.kafka.client import KafkaClient, Part, group_of, offsets_of, parts_of
from ematix_flow.backends.kafka.errors import recognised
from ematix_flow.backends.kafka.security import Access
from ematix_flow.backends.kafka.topics import Topics
from ematix_flow.contract.stream import ENVELOPE, Lost, Offsets, PartitionLag, StreamRead
from ematix_flow.foundation.errors import FlowError, PlanError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ematix_flow.declare.connections import KafkaConnection

EARLIEST, LATEST = "earliest", "latest"
MAX_ROWS = 250_000
"""Messages of a micro-batch where the stream does not say: the first one from `earliest` would be the whole topic."""
_LOSS = ("[KAFKA_DATA_LOSS", "consumer.OffsetOutOfRangeException", "data may have been lost")
"""What Spark's connector and Kafka's client say of messages that are gone; none of it can be the name of a topic."""
_FROM_THE_BEGINNING = -2  # as Spark's connector writes it
_ABSENT = {"message_id": "CAST(NULL AS STRING)"}  # Kafka knows a message by its offset


class KafkaSource:
    """The topics of one Kafka connection as a stream of envelopes."""

    envelopes = True

    def __init__(self, connection: KafkaConnection) -> None:
        self._connection = connection
        self._clients: dict[str, KafkaClient] = {}

    def check(self, read: StreamRead) -> None:
        """Refuse a broker that does not answer, a login that is wrong, and a topic that is not there."""
        self._client(read).partitions(Topics.of(read.query))
        self._start(read)

    def frame(self, spark: SparkSession, read: StreamRead) -> DataFrame:
        """The stream; it stops when Kafka has dropped what it has not read, and it sees committed messages only."""
        name, value = Topics.of(read.query).option
        options = {
            **Access.of(self._connection).for_spark(),
            name: value,
            "startingOffsets": self._start(read),
            "includeHeaders": "true",
            "failOnDataLoss": "true",
            "groupIdPrefix": f"{group_of(self._connection, read.stream)}-spark",
            "kafka.isolation.level": "read_committed",
            # A fetch that waits for more holds back the questions that a task asks first; a task asks for what is there.
            "kafka.fetch.max.wait.ms": "10",
            # Others among them are for the engine, or for other sources.
            **{key: str(value) for key, value in read.options.items() if key.startswith("kafka.")},
        }
        options["maxOffsetsPerTrigger"] = str(read.max_rows if read.max_rows is not None else MAX_ROWS)
        loaded = spark.readStream.format("kafka").options(**options).load()
        return loaded.selectExpr(
            *(f"CAST({_ABSENT.get(column, f'`{column}`')} AS {kind}) AS `{column}`" for column, kind in ENVELOPE)
        )

    def committed(self, read: StreamRead, end: Offsets) -> None:
        """Write the end of a batch into the consumer group, where ordinary tools see it."""
        self._client(read).commit(parts_of(end))

    def lag(self, read: StreamRead, end: Offsets) -> Sequence[PartitionLag]:
        """What each partition holds beyond these offsets, and for how long its oldest message has waited."""
        client = self._client(read)
        reached = self._reached(client, read, end)
        ends = client.ends(reached)
        rows = {part: max(0, ends[part] - at) for part, at in reached.items()}
        written = client.timestamps({part: reached[part] for part, count in rows.items() if count})
        now = time.time()
        return [
            PartitionLag(_name(part), count, _waited(now, written.get(part)) if count else 0.0)
            for part, count in sorted(rows.items())
        ]

    def lost(self, read: StreamRead, end: Offsets) -> Sequence[Lost]:
        """Offsets that were still to be read and are no longer kept, and topics that are gone or were made anew."""
        client, wanted = self._client(read), parts_of(end)
        existing = client.topics()
        there = {part: at for part, at in wanted.items() if part[1] in existing.get(part[0], ())}
        first, last = client.beginnings(there), client.ends(there)
        found = [Lost(_name(part), str(at), "", None) for part, at in wanted.items() if part not in there]
        for part, at in there.items():
            if first[part] > at:
                found.append(Lost(_name(part), str(at), str(first[part]), first[part] - at))
            elif last[part] < at:  # fewer messages than were read: another topic of the same name
                found.append(Lost(_name(part), str(at), str(first[part]), None))
        return sorted(found, key=lambda item: item.part)

    def offsets_at(self, read: StreamRead, moment: datetime) -> Offsets:
        """Where every partition stood at a moment."""
        aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=timezone.utc)
        client = self._client(read)
        return offsets_of(client.at(client.partitions(Topics.of(read.query)), int(aware.timestamp() * 1000)))

    def tells_of_loss(self, exc: BaseException) -> bool:
        """Whether a query ended because messages are gone that it wanted to read."""
        return any(word in str(exc) for word in _LOSS)

    def explained(self, exc: BaseException) -> FlowError | None:
        """What ended a query, where the connector's exception is about Kafka."""
        return recognised(str(exc), at=self._connection.resolved().label)

    def close(self) -> None:
        """End the sessions with the broker."""
        for client in self._clients.values():
            client.close()
        self._clients.clear()

    def _client(self, read: StreamRead) -> KafkaClient:
        group = group_of(self._connection, read.stream)
        if group not in self._clients:
            self._clients[group] = KafkaClient(self._connection, group)
        return self._clients[group]

    def _start(self, read: StreamRead) -> str:
        """Where a stream without a checkpoint begins, as Spark's connector wants it."""
        start = read.start.strip() or EARLIEST
        if start in (EARLIEST, LATEST):
            return start
        return json.dumps(self._completed(read, _parsed(start)))

    def _completed(self, read: StreamRead, said: Mapping[Part, int]) -> dict[str, dict[str, int]]:
        """Every partition with an offset: those that nobody spoke of are read from their beginning."""
        there = self._client(read).partitions(Topics.of(read.query))
        unknown = sorted(set(said) - set(there))
        if unknown:
            raise PlanError(
                f"the stream is to start in {_name(unknown[0])}, which {read.query!r} does not have",
                hint=f"it has {', '.join(_name(part) for part in there[:10])}",
            )
        return offsets_of({part: said.get(part, _FROM_THE_BEGINNING) for part in there})

    def _reached(self, client: KafkaClient, read: StreamRead, end: Offsets) -> dict[Part, int]:
        """The offsets, and the beginning of every partition that no batch has touched yet."""
        there = client.partitions(Topics.of(read.query))
        known = {part: at for part, at in parts_of(end).items() if part in set(there)}
        return {**client.beginnings(part for part in there if part not in known), **known}


def _parsed(start: str) -> dict[Part, int]:
    try:
        return parts_of(json.loads(start))
    except (ValueError, TypeError, AttributeError):
        raise PlanError(
            f"a stream cannot start at {start!r}",
            hint='say earliest, latest, or offsets: {"orders": {"0": 1200, "1": 1180}}',
        ) from None


def _waited(now: float, written: int | None) -> float | None:
    return None if written is None or written < 0 else max(0.0, now - written / 1000)


def _name(part: Any) -> str:
    return f"{part[0]}-{part[1]}"
