"""Reading from Kafka: messages by Spark's own connector; offsets, lag and lost messages by our own client."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from ematix_flow.backends.kafka.client import KafkaClient, Part, group_of, offsets_of, parts_of
from ematix_flow.backends.kafka.errors import recognise_connector_error
from ematix_flow.backends.kafka.login import KafkaLogin
from ematix_flow.backends.kafka.topics import TopicSelection
from ematix_flow.contract.stream import (
    EARLIEST,
    ENVELOPE,
    FIRST_MOMENT,
    LATEST,
    LostRows,
    Offsets,
    PartitionLag,
    StreamRead,
    StreamSource,
)
from ematix_flow.declare.connections import KafkaConnection
from ematix_flow.foundation import clock
from ematix_flow.foundation.errors import FlowError, PlanError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


MAX_ROWS = 250_000
"""The messages of a micro-batch where the stream sets no limit: the first from `earliest` would be the whole topic."""
_LOSS = ("[KAFKA_DATA_LOSS", "consumer.OffsetOutOfRangeException", "data may have been lost")
"""The texts with which Spark's connector and Kafka's client report lost messages; none can occur in a topic's name."""
_FROM_THE_BEGINNING = -2  # as Spark's connector writes it
_BEYOND = timedelta(days=36_500)
_ABSENT = {"message_id": "CAST(NULL AS STRING)"}  # Kafka identifies a message by its offset


class KafkaSource(StreamSource):
    """The topics of one Kafka connection as a stream of envelopes."""

    envelopes = True

    def __init__(self, connection: KafkaConnection) -> None:
        self._connection = connection
        self._clients: dict[str, KafkaClient] = {}

    def check(self, read: StreamRead) -> None:
        """Raise a FlowError for a broker that does not answer, a refused login, a missing topic or an invalid start."""
        self._client(read).partitions(TopicSelection.of(read.query))
        self._start(read)

    def frame(self, spark: SparkSession, read: StreamRead) -> DataFrame:
        """Return the stream, with committed messages only; it fails when Kafka has dropped unread messages."""
        name, value = TopicSelection.of(read.query).option
        options = {
            **KafkaLogin.of(self._connection).for_spark(),
            name: value,
            "startingOffsets": self._start(read),
            "includeHeaders": "true",
            "failOnDataLoss": "true",
            "groupIdPrefix": f"{group_of(self._connection, read.stream)}-spark",
            "kafka.isolation.level": "read_committed",
            # A fetch that waits for more data delays the requests with which a task begins; tasks fetch what is there.
            "kafka.fetch.max.wait.ms": "10",
            # The other options are for the engine, or for other sources.
            **{key: str(value) for key, value in read.options.items() if key.startswith("kafka.")},
        }
        options["maxOffsetsPerTrigger"] = str(read.max_rows if read.max_rows is not None else MAX_ROWS)
        loaded = spark.readStream.format("kafka").options(**options).load()
        return loaded.selectExpr(
            *(f"CAST({_ABSENT.get(column, f'`{column}`')} AS {kind}) AS `{column}`" for column, kind in ENVELOPE)
        )

    def committed(self, read: StreamRead, end: Offsets) -> None:
        """Commit the end of a batch for the consumer group, where ordinary tools see it."""
        self._client(read).commit(parts_of(end))

    def lag(self, read: StreamRead, end: Offsets) -> Sequence[PartitionLag]:
        """Return each partition's rows beyond these offsets, and the seconds that its oldest message has waited."""
        client = self._client(read)
        reached = self._current_offsets(client, read, end)
        ends = client.ends(reached)
        rows = {part: max(0, ends[part] - at) for part, at in reached.items()}
        written = client.timestamps({part: reached[part] for part, count in rows.items() if count})
        now = time.time()
        return [
            PartitionLag(_name(part), count, _seconds_waited(now, written.get(part)) if count else 0.0)
            for part, count in sorted(rows.items())
        ]

    def lost(self, read: StreamRead, end: Offsets) -> Sequence[LostRows]:
        """Return unread offsets that are no longer retained, and topics that were deleted or recreated."""
        client, wanted = self._client(read), parts_of(end)
        existing = client.topics()
        existing_parts = {part: at for part, at in wanted.items() if part[1] in existing.get(part[0], ())}
        first, last = client.beginnings(existing_parts), client.ends(existing_parts)
        lost = [LostRows(_name(part), str(at), "", None) for part, at in wanted.items() if part not in existing_parts]
        for part, at in existing_parts.items():
            if first[part] > at:
                lost.append(LostRows(_name(part), str(at), str(first[part]), first[part] - at))
            elif last[part] < at:  # fewer messages than were read: a recreated topic
                lost.append(LostRows(_name(part), str(at), str(first[part]), None))
        return sorted(lost, key=lambda item: item.part)

    def offsets_at(self, read: StreamRead, moment: datetime) -> Offsets:
        """Return the offsets of every partition at a point in time, which is UTC without a zone."""
        aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=timezone.utc)
        client = self._client(read)
        return offsets_of(client.at(client.partitions(TopicSelection.of(read.query)), int(aware.timestamp() * 1000)))

    def position(self, read: StreamRead, word: str) -> tuple[str, Offsets]:
        """Return the offsets of every partition as the start: the word alone may be overridden by the connection."""
        moment = FIRST_MOMENT if word == EARLIEST else clock.now() + _BEYOND  # messages may have any timestamp
        offsets = self.offsets_at(read, moment)
        return json.dumps(offsets, sort_keys=True), offsets

    def names(self, read: StreamRead) -> Sequence[str]:
        """Return the topics."""
        return TopicSelection.of(read.query).names

    def rewound(self, read: StreamRead, offsets: Offsets) -> None:
        """Commit the offsets for the consumer group."""
        self.committed(read, offsets)

    def is_loss_error(self, exc: BaseException) -> bool:
        """Return whether a query ended because unread messages are gone."""
        return any(word in str(exc) for word in _LOSS)

    def translated(self, exc: BaseException) -> FlowError | None:
        """Return the FlowError for the exception that ended a query; None when it is not about Kafka."""
        return recognise_connector_error(str(exc), at=self._connection.resolved().label)

    def close(self) -> None:
        """Close the sessions with the broker."""
        for client in self._clients.values():
            client.close()
        self._clients.clear()

    def _client(self, read: StreamRead) -> KafkaClient:
        group = group_of(self._connection, read.stream)
        if group not in self._clients:
            self._clients[group] = KafkaClient(self._connection, group)
        return self._clients[group]

    def _start(self, read: StreamRead) -> str:
        """Return the start of a stream without a checkpoint, in the form of Spark's connector."""
        start = read.start.strip() or EARLIEST
        if start in (EARLIEST, LATEST):
            return start
        return json.dumps(self._with_all_partitions(read, _parsed_offsets(start)))

    def _with_all_partitions(self, read: StreamRead, offsets: Mapping[Part, int]) -> dict[str, dict[str, int]]:
        """Return an offset for every partition; those not given are read from their beginning."""
        parts = self._client(read).partitions(TopicSelection.of(read.query))
        unknown = sorted(set(offsets) - set(parts))
        if unknown:
            raise PlanError(
                f"the stream is to start in {_name(unknown[0])}, which {read.query!r} does not have",
                hint=f"it has {', '.join(_name(part) for part in parts[:10])}",
            )
        return offsets_of({part: offsets.get(part, _FROM_THE_BEGINNING) for part in parts})

    def _current_offsets(self, client: KafkaClient, read: StreamRead, end: Offsets) -> dict[Part, int]:
        """Return the offsets, and the beginning of every partition that no batch has read yet."""
        parts = client.partitions(TopicSelection.of(read.query))
        known = {part: at for part, at in parts_of(end).items() if part in set(parts)}
        return {**client.beginnings(part for part in parts if part not in known), **known}


def _parsed_offsets(start: str) -> dict[Part, int]:
    try:
        return parts_of(json.loads(start))
    except (ValueError, TypeError, AttributeError):
        raise PlanError(
            f"a stream cannot start at {start!r}",
            hint='say earliest, latest, or offsets: {"orders": {"0": 1200, "1": 1180}}',
        ) from None


def _seconds_waited(now: float, written: int | None) -> float | None:
    return None if written is None or written < 0 else max(0.0, now - written / 1000)


def _name(part: Any) -> str:
    return f"{part[0]}-{part[1]}"
