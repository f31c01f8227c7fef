"""Streams: sources of messages, their envelope, broker sinks, and listeners that fire workflows."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Protocol

from ematix_flow.declare.message import Message
from ematix_flow.foundation.clock import now
from ematix_flow.foundation.errors import FlowError

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
EARLIEST, LATEST = "earliest", "latest"
FIRST_MOMENT = datetime(1970, 1, 1, tzinfo=timezone.utc)
LETTER_HEADER = "ematix-"
"""The prefix of the headers that a dead letter in a topic has beside those of its message."""

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
    """A provider of streaming dataframes: of envelopes (a broker), or of rows (a lake).

    A source inherits from it; the methods with a body suit most sources.
    """

    envelopes: bool

    def check(self, read: StreamRead) -> None:
        """Raise FlowError when the source cannot be reached or does not exist."""

    def frame(self, spark: SparkSession, read: StreamRead) -> DataFrame:
        """Return the streaming dataframe; nothing is read yet."""

    def committed(self, read: StreamRead, end: Offsets) -> None:
        """Report to the broker that a batch ending at these offsets is in the targets and in the checkpoint."""
        return  # where only the checkpoint records them

    def lag(self, read: StreamRead, end: Offsets) -> Sequence[PartitionLag]:
        """Return the lag of each part after these offsets."""

    def lost(self, read: StreamRead, end: Offsets) -> Sequence[LostRows]:
        """Return the rows that the source deleted before they were read; none where it deletes no unread rows."""
        return ()

    def offsets_at(self, read: StreamRead, moment: datetime) -> Offsets:
        """Return the offsets from which to read everything since a moment; raise Unsupported if that is impossible."""

    def close(self) -> None:
        """Release the resources that the source holds in this process."""
        return

    def has_more(self, read: StreamRead) -> bool:
        """Return whether a drain that takes only a part of the data per query has left some."""
        return False

    def translated(self, exc: BaseException) -> FlowError | None:
        """Return the FlowError for the exception that ended a query; None when it is not about this source."""
        return None

    def is_loss_error(self, exc: BaseException) -> bool:
        """Return whether a query ended because unread rows are gone."""
        return False

    def position(self, read: StreamRead, word: str) -> tuple[str, Offsets]:
        """Return the start for `earliest` or `latest`, and its offsets.

        The end is fixed now, so that rows that come meanwhile are not skipped.
        """
        if word == EARLIEST:
            return EARLIEST, self.offsets_at(read, FIRST_MOMENT)
        offsets = self.offsets_at(read, now())
        return json.dumps(offsets, sort_keys=True), offsets

    def names(self, read: StreamRead) -> Collection[str]:
        """Return the names by which offsets of several sources are identified as those of this one."""
        return (read.query,)

    def rewound(self, read: StreamRead, offsets: Offsets) -> None:
        """Report the offsets of a rewind to the broker, where its own tools show them."""
        return


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

    def max_message_bytes(self, place: str, *, exactly_once: bool = False) -> int | None:
        """Return the maximum size of key, value and headers together; None where the broker does not report one."""


Partition = tuple[str, int]
"""A topic and a number."""


class TransactionTokens(ABC):
    """A capability of a broker sink: its transactions carry offsets of the source, each with its micro-batch."""

    @abstractmethod
    def committed_partitions(self, job: BrokerJob) -> Collection[Partition]:
        """Return the source partitions whose rows of this batch an earlier attempt sent; that attempt is fenced."""

    @abstractmethod
    def last_sent(self, group: str, writer: str, ends: Offsets) -> Mapping[Partition, tuple[int, int]]:
        """Return the last batch of a writer in each partition of its source, and the offset that it reached."""

    @abstractmethod
    def writers(self, group: str) -> Sequence[str]:
        """Return the writers whose tokens the cluster holds for streams that read with this group."""


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


@dataclass(frozen=True)
class TopicLetter:
    """A dead letter as a message of a topic."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    at: datetime

    def header(self, name: str) -> str | None:
        """Return the value of one of our headers; None where it is missing or empty."""
        header_value = next((value for key, value in self.headers if key == f"{LETTER_HEADER}{name}"), None)
        return header_value.decode("utf-8", "replace") if header_value else None

    @property
    def own_headers(self) -> list[tuple[str, bytes | None]]:
        """Return the headers that the message had originally."""
        return [(key, value) for key, value in self.headers if not key.startswith(LETTER_HEADER)]


class LetterTopic(Protocol):
    """The dead letters of one stream in a topic."""

    topic: str

    def newest(self, limit: int) -> list[TopicLetter]:
        """Return up to `limit` letters, the newest first."""

    def get(self, partition: int, offset: int) -> TopicLetter | None:
        """Return the letter at an offset; None where there is none."""

    def counts(self) -> tuple[int, int]:
        """Return how many offsets the topic holds, and how many of them were not sent back yet."""

    def skip_pending(self) -> int:
        """Let replays begin behind the newest letter; return the number of offsets skipped."""

    def drop(self, before: datetime | None) -> int:
        """Delete all messages, or those older than `before`; return the number of offsets deleted."""

    def resend(self, letters: Sequence[TopicLetter]) -> int:
        """Send these letters to their source again, even if they were sent before; return their number."""

    def resend_pending(self, most: int | None = None) -> int:
        """Send pending letters to their source, each once whatever fails; return their number."""

    def close(self) -> None:
        """Close the sessions."""


LetterTopicMaker = Callable[[Any, str, str, str], LetterTopic]
"""Makes the access to a topic of dead letters from a connection, the topic, the stream's name and its source query."""
