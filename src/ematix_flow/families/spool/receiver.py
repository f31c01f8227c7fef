"""What the spool asks of a broker: messages with delivery tags, and a way to say which of them are done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from typing import Any, Protocol

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Message:
    """One delivery of one message."""

    value: bytes
    tag: Any
    """By which the broker knows this delivery; it means something only on the connection it came on."""
    key: bytes | None = None
    headers: Headers | None = None
    message_id: str | None = None
    timestamp: datetime | None = None


def identity(message_id: str | None, value: bytes | None) -> str | None:
    """By which a second delivery is recognised; None for a message without an id, which cannot be.

    The content belongs to it: publishers exist that give all their messages one id. Without an id nothing is safe: two
    messages may well have the same content, and a flag that says "delivered before" does not say which one it was.

    >>> identity("m-1", b"{}") == identity("m-1", b"{}"), identity("m-1", b"{}") == identity("m-1", b"[]")
    (True, False)
    """
    if not message_id:
        return None
    named = message_id.encode(errors="surrogatepass")
    return blake2b(value or b"", key=blake2b(named, digest_size=32).digest(), digest_size=16).hexdigest()


class Receiver(Protocol):
    """A consumer of one queue or subscription; used by one thread.

    Whatever goes wrong is raised as a FlowError; after `Unreachable` the spool closes the receiver and connects again.
    """

    renew_seconds: float | None
    """How often deliveries must be renewed lest the broker gives them to somebody else; None where it waits."""
    rejects_at_once: bool
    """Whether a message that is refused is gone at once; some brokers deliver it a few times more before they believe it."""

    def connect(self, window: int) -> None:
        """Begin to consume; the broker may have `window` messages under way to us, any number when it is 0."""

    def waiting(self) -> int | None:
        """How many messages wait at the broker, where it tells."""

    def receive(self, limit: int, timeout: float) -> Sequence[Message]:
        """Up to `limit` messages, as soon as there is one; a limit of 0 only keeps the connection alive meanwhile."""

    def ack(self, tags: Sequence[Any]) -> None:
        """These deliveries are done."""

    def nack(self, tags: Sequence[Any], *, requeue: bool) -> None:
        """Give deliveries back, or refuse them for good, so that the broker dead-letters them where it is told to."""

    def extend(self, tags: Sequence[Any]) -> None:
        """We still work on these deliveries."""

    def close(self) -> None:
        """Leave; what was not acknowledged is delivered again. Never raises."""


MakeReceiver = Callable[[], Receiver]


@dataclass(frozen=True)
class Limits:
    """How much, how long."""

    max_rows: int | None = None
    """The most rows of one micro-batch."""
    window: int = 20_000
    """The most messages that are received and not yet acknowledged."""
    segment_rows: int = 5_000
    segment_bytes: int = 8 * 1024 * 1024
    linger_seconds: float = 0.05
    """How long a segment waits for more messages."""
    heartbeat_seconds: float = 1.0
    """How long committed work may wait for its acknowledgement before an empty batch fetches it."""
    remember: int = 100_000
    """Identities that are kept beyond their segments, for acknowledgements that a broker lost."""
    patience_seconds: float = 60.0
    """How long a broker that comes back may refuse us, as brokers do while they start."""
    drain: bool = False
    """Whether the first batch takes everything that is there, and is the only one."""
    quiet_seconds: float = 2.0
    """A broker that gives nothing for so long has no more, when the spool drains."""

    @property
    def rows_of_a_segment(self) -> int:
        """No segment may be larger than a micro-batch, nor fill the window alone."""
        wanted = [self.segment_rows, *([self.max_rows] if self.max_rows else [])]
        return max(1, min([*wanted, self.window] if self.window else wanted))
