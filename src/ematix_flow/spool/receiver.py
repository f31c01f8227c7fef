"""The interface between the spool and a broker: messages with delivery tags that are acknowledged or refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from typing import Any, Protocol

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Delivery:
    """One delivery of one message."""

    value: bytes
    tag: Any
    """The broker's identifier of this delivery, valid only on the connection it came on."""
    key: bytes | None = None
    headers: Headers | None = None
    message_id: str | None = None
    timestamp: datetime | None = None


def identity(message_id: str | None, value: bytes | None) -> str | None:
    """Return the key by which a second delivery is recognised; None for a message without an id.

    The key covers the content, because some publishers give all their messages one id. Without an id nothing is safe:
    two messages may have the same content, and a "redelivered" flag does not identify the earlier delivery.

    >>> identity("m-1", b"{}") == identity("m-1", b"{}"), identity("m-1", b"{}") == identity("m-1", b"[]")
    (True, False)
    """
    if not message_id:
        return None
    named = message_id.encode(errors="surrogatepass")
    return blake2b(value or b"", key=blake2b(named, digest_size=32).digest(), digest_size=16).hexdigest()


class Receiver(Protocol):
    """A consumer of one queue or subscription, used by one thread.

    Every failure is raised as a FlowError; after `Unreachable` the spool closes the receiver and connects again.
    """

    renew_seconds: float | None
    """The interval of deadline extensions that stop the broker from redelivering; None where it needs none."""
    rejects_at_once: bool
    """Whether a refused message is gone at once; some brokers redeliver it a few times before dead-lettering it."""

    def connect(self, window: int) -> None:
        """Start to consume; at most `window` messages may be unacknowledged, any number when it is 0."""

    def waiting(self) -> int | None:
        """Return how many messages wait at the broker; None where it does not report that."""

    def receive(self, limit: int, timeout: float) -> Sequence[Delivery]:
        """Return up to `limit` messages as soon as there is one; a limit of 0 only keeps the connection alive."""

    def ack(self, tags: Sequence[Any]) -> None:
        """Acknowledge these deliveries."""

    def nack(self, tags: Sequence[Any], *, requeue: bool) -> None:
        """Requeue deliveries, or refuse them for good, so that the broker dead-letters them where configured."""

    def extend(self, tags: Sequence[Any]) -> None:
        """Extend the acknowledgement deadline of these deliveries."""

    def close(self) -> None:
        """Close the connection; unacknowledged messages are delivered again. Never raises."""


MakeReceiver = Callable[[], Receiver]


@dataclass(frozen=True)
class SpoolLimits:
    """The size and time limits of a spool."""

    max_rows: int | None = None
    """The most rows of one micro-batch."""
    window: int = 20_000
    """The most messages that are received and not yet acknowledged."""
    segment_rows: int = 5_000
    segment_bytes: int = 8 * 1024 * 1024
    linger_seconds: float = 0.05
    """The longest time that a segment waits for more messages."""
    heartbeat_seconds: float = 1.0
    """The longest time that committed messages wait for their acknowledgement before an empty batch triggers it."""
    remember: int = 100_000
    """The number of identities that are kept beyond their segments, for acknowledgements that a broker lost."""
    patience_seconds: float = 60.0
    """The longest time that a returning broker may refuse the connection, as brokers do while they start."""
    drain: bool = False
    """Whether the first batch takes everything that is there, and is the only one."""
    quiet_seconds: float = 2.0
    """The time without a message after which a draining spool treats the broker as empty."""

    @property
    def rows_of_a_segment(self) -> int:
        """Return the row limit of a segment: not larger than a micro-batch, and not larger than the window."""
        wanted = [self.segment_rows, *([self.max_rows] if self.max_rows else [])]
        return max(1, min([*wanted, self.window] if self.window else wanted))
