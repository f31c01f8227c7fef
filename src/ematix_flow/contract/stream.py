"""A stream: where its messages come from, what one of them looks like, and the brokers that take rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

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
"""The columns of every message, whatever broker it comes from; what a broker does not know is NULL."""

AT_LEAST_ONCE = "at-least-once"
EXACTLY_ONCE = "exactly-once"

Offsets = Mapping[str, Any]
"""Where a source stands, as the checkpoint keeps it: JSON of the source's own shape."""


@dataclass(frozen=True)
class StreamRead:
    """What a stream wants of one source."""

    stream: str
    query: str
    """The topic, topics, pattern, queue, subscription, prefix or table."""
    checkpoint: str
    """The stream's own folder, local or an address that Hadoop knows; spools live below it."""
    start: str = "earliest"
    """Where a stream without a checkpoint begins: earliest, latest, or offsets as JSON."""
    max_rows: int | None = None
    """The most rows of one micro-batch, where the source can tell."""
    options: Mapping[str, Any] = field(default_factory=dict)
    number: int = 0
    """Which of the stream's sources it is: its line in the offset log."""

    def own(self, name: str) -> str:
        """The name of what the source keeps below the checkpoint, apart from what others keep there."""
        return f"{name}-{self.number}" if self.number else name


@dataclass(frozen=True)
class PartitionLag:
    """How far one part of a source is ahead of what was committed."""

    part: str
    """`topic-partition`, shard or queue."""
    rows: int | None
    seconds: float | None = None


@dataclass(frozen=True)
class Lost:
    """Rows that a source no longer keeps although the stream has not read them."""

    part: str
    first_wanted: str
    first_kept: str
    rows: int | None


class StreamSource(Protocol):
    """Gives Spark a streaming frame: of envelopes (a broker), or of rows (a lake)."""

    envelopes: bool

    def check(self, read: StreamRead) -> None:
        """Refuse, with a sentence, what cannot be reached or is not there."""

    def frame(self, spark: SparkSession, read: StreamRead) -> DataFrame:
        """The stream; nothing is read yet."""

    def committed(self, read: StreamRead, end: Offsets) -> None:
        """A batch that ends here is in the targets and in the checkpoint: tell the broker."""

    def lag(self, read: StreamRead, end: Offsets) -> Sequence[PartitionLag]:
        """What is left to read after these offsets."""

    def lost(self, read: StreamRead, end: Offsets) -> Sequence[Lost]:
        """What was dropped by the source before it was read."""

    def offsets_at(self, read: StreamRead, moment: datetime) -> Offsets:
        """Where to begin in order to read everything from a moment on; Unsupported where it cannot be told."""

    def close(self) -> None:
        """End what the source holds open in this process."""


@dataclass(frozen=True)
class BrokerJob:
    """What a broker is told about one micro-batch."""

    stream: str
    writer: str
    batch: int
    place: str
    """The topic, queue or partition key prefix."""
    exactly_once: bool = False
    group: str | None = None
    """The consumer group whose offsets travel in the broker's transaction."""
    ends: Offsets = field(default_factory=dict)
    """Where the batch ends in its source, for a transaction that carries the offsets."""


class BrokerSink(Protocol):
    """Sends frames with the columns key, value and headers; a frame for a transaction has topic and partition, too."""

    def check(self, place: str) -> None:
        """Refuse, with a sentence, a place that is not there."""

    def send(self, job: BrokerJob, frame: DataFrame) -> int:
        """Send every row and wait until the broker has them; rows sent."""


StreamSourceMaker = Callable[[Any], StreamSource]
BrokerSinkMaker = Callable[[Any], BrokerSink]
