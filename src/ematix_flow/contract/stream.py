"""Streams: sources of messages, their envelope, broker sinks, and listeners that fire workflows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from ematix_flow.declare.message import Message

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ENVELOPE = (
    ("key", "BINARY"),
    ("value", "BINARY"),
    ("headers", "ARRAY<STRUCT<key: STRING, value: BINARY>>"),
    ("topic", "STRING"),
    ("partition", "INT"),
    ("offset", "BIGINT"),
    ("message_id", "STRING"),
    ("timestamp", "TIMESTAMP"),
)
"""The columns of every message from any broker; a value that the broker does not provide is NULL."""

AT_LEAST_ONCE = "at-least-once"
EXACTLY_ONCE = "exactly-once"

Offsets = Mapping[str, Any]
"""A source's position as stored in the checkpoint: JSON in the source's own format."""


@dataclass(frozen=True)
class StreamRead:
    """A stream's read of one of its sources."""

    stream: str
    query: str
    """The topic, topics, pattern, queue, subscription, prefix or table."""
    checkpoint: str
    """The stream's own folder, a local path or a Hadoop address; spools are stored below it."""
    start: str = "earliest"
    """The start position of a stream without a checkpoint: earliest, latest, or offsets as JSON."""
    max_rows: int | None = None
    """The maximum number of rows per micro-batch, where the source can limit it."""
    options: Mapping[str, Any] = field(default_factory=dict)
    number: int = 0
    """The index among the stream's sources, which is the source's line in the offset log."""

    def state_name(self, name: str) -> str:
        """Return the name of the source's data below the checkpoint, unique among the stream's sources."""
        return f"{name}-{self.number}" if self.number else name


@dataclass(frozen=True)
class PartitionLag:
    """The lag of one part of a source behind its committed offset."""

    part: str
    """`topic-partition`, shard or queue."""
    rows: int | None
    seconds: float | None = None


@dataclass(frozen=True)
class LostRows:
    """Rows that the source has deleted before the stream read them."""

    part: str
    first_wanted: str
    first_kept: str
    rows: int | None


class StreamSource(Protocol):
    """A provider of streaming dataframes: of envelopes (a broker), or of rows (a lake)."""

    envelopes: bool

    def check(self, read: StreamRead) -> None:
        """Raise FlowError when the source cannot be reached or does not exist."""

    def frame(self, spark: SparkSession, read: StreamRead) -> DataFrame:
        """Return the streaming dataframe; nothing is read yet."""

    def committed(self, read: StreamRead, end: Offsets) -> None:
        """Report to the broker that a batch ending at these offsets is in the targets and in the checkpoint."""

    def lag(self, read: StreamRead, end: Offsets) -> Sequence[PartitionLag]:
        """Return the lag of each part after these offsets."""

    def lost(self, read: StreamRead, end: Offsets) -> Sequence[LostRows]:
        """Return the rows that the source deleted before they were read."""

    def offsets_at(self, read: StreamRead, moment: datetime) -> Offsets:
        """Return the offsets from which to read everything since a moment; raise Unsupported if that is impossible."""

    def close(self) -> None:
        """Release the resources that the source holds in this process."""


@dataclass(frozen=True)
class BrokerJob:
    """The facts about one micro-batch that a broker sink needs."""

    stream: str
    writer: str
    batch: int
    place: str
    """The topic, queue or partition key prefix."""
    exactly_once: bool = False
    group: str | None = None
    """The consumer group whose offsets are committed in the broker's transaction."""
    ends: Offsets = field(default_factory=dict)
    """The end offsets of the batch in its source, for a transaction that commits them."""


class BrokerSink(Protocol):
    """A sender of dataframes with the columns key, value and headers; for a transaction also topic and partition."""

    def check(self, place: str) -> None:
        """Raise FlowError when the topic or queue does not exist."""

    def send(self, job: BrokerJob, frame: DataFrame) -> int:
        """Send every row, wait for the broker's acknowledgements, and return the number of rows sent."""


StreamSourceMaker = Callable[[Any], StreamSource]
BrokerSinkMaker = Callable[[Any], BrokerSink]


class MessageListener(Protocol):
    """A consumer of topics or of a queue, used by one thread; every failure is raised as a FlowError."""

    def receive(self, limit: int, seconds: float) -> Sequence[Message]:
        """Return up to `limit` messages as soon as one is available; empty when none arrived within `seconds`."""

    def confirm(self) -> None:
        """Acknowledge all received messages; without it the broker delivers them again after `close`."""

    def close(self) -> None:
        """Close the connection to the broker; never raises."""


ListenerMaker = Callable[[Any, str, str], MessageListener]
"""Makes a listener from a connection, a topic or queue, and the name under which it registers with the broker."""
