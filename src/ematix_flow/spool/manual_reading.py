"""What the classes for notebooks of RabbitMQ and Pub/Sub share: Arrow batches of messages that wait to be settled."""

from __future__ import annotations

import threading
import time
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from ematix_flow.foundation.errors import DeclarationError
from ematix_flow.messages.arrow_batches import batch_from_json
from ematix_flow.messages.notebook import (
    BATCH_BYTES,
    BATCH_SIZE,
    NotebookBackend,
    as_batch_iterator,
    positive_option,
)
from ematix_flow.spool.receiver import Delivery, Receiver

_IDLE_MS = 5_000
_WINDOW_SECONDS = 1.0
_TURN_SECONDS = 0.1
_AT_ONCE = 100
WITHOUT_LIMIT = 0
"""The receiver's window: any number of messages may be unacknowledged."""


@dataclass(frozen=True)
class BatchLimits:
    """The size limits of a batch, and the idle time after which the queue counts as empty."""

    rows: int
    size: int
    idle_seconds: float

    @classmethod
    def of(cls, batch_size: int | None, batch_bytes: int | None, idle_timeout_ms: int | None) -> BatchLimits:
        """Return the limits that the user gave, defaults for the rest; raise DeclarationError for an invalid value."""
        return cls(
            positive_option("batch_size", batch_size, BATCH_SIZE),
            positive_option("batch_bytes", batch_bytes, BATCH_BYTES),
            positive_option("idle_timeout_ms", idle_timeout_ms, _IDLE_MS) / 1000,
        )


class QueueBackend(NotebookBackend):
    """A connection to one broker, whose messages stay unacknowledged until the user settles them."""

    queue_kind: ClassVar[str]
    """What the broker calls the place of the messages: a queue, a subscription."""

    def __init__(self, connection: Any, limits: BatchLimits) -> None:
        super().__init__(connection)
        self._limits = limits
        self._receiver: Receiver | None = None
        self._name: str | None = None
        self._pending: list[Any] = []
        self._undecoded: list[Any] = []
        self._lock = threading.Lock()  # a subclass may read the tags in another thread

    @abstractmethod
    def _connect(self, name: str) -> Receiver:
        """Return a connected receiver of the messages of one place."""

    @as_batch_iterator
    def iter_arrow_stream(self, query: str) -> Iterator[Any]:
        """Yield batches of JSON messages; end when nothing has come for `idle_timeout_ms`.

        Messages of returned batches are withheld from other consumers until `commit_offsets()` or `nack_pending()`.
        Messages that cannot be decoded wait for the latter alone, so that no unseen message is acknowledged.
        """
        receiver, number = self._receiver_of(query), 0
        while messages := self._gathered(receiver):
            tags = [message.tag for message in messages]
            with self._lock:
                self._undecoded += tags
            places = [message.message_id or f"{query}#{number + row}" for row, message in enumerate(messages)]
            batch = batch_from_json([message.value for message in messages], places)
            number += len(messages)
            with self._lock:
                del self._undecoded[-len(tags) :]
                self._pending += tags
            yield batch

    def commit_offsets(self) -> None:
        """Acknowledge every message of the batches returned so far."""
        with self._lock:
            tags, self._pending = self._pending, []
        if self._receiver is not None and tags:
            self._receiver.ack(tags)
            self._flush()

    def close(self) -> None:
        """Close the connection; unacknowledged messages are delivered again."""
        if self._receiver is not None:
            self._receiver.close()
        self._receiver, self._name, self._pending, self._undecoded = None, None, [], []

    def _nack(self, *, requeue: bool) -> int:
        """Requeue or refuse all messages that are not settled, and return their number."""
        with self._lock:
            tags, self._pending, self._undecoded = self._pending + self._undecoded, [], []
        if self._receiver is not None and tags:
            self._receiver.nack(tags, requeue=requeue)
            self._flush()
        return len(tags)

    def _flush(self) -> None:
        """Send what the client still holds back."""

    def _pending_count(self) -> int:
        return len(self._pending) + len(self._undecoded)

    def _receiver_of(self, name: str) -> Receiver:
        if self._receiver is not None and self._name == name:
            return self._receiver
        if waiting := self._pending_count():
            raise DeclarationError(
                f"{waiting} message(s) of {self._name!r} wait for an answer",
                hint=f"commit_offsets() or nack_pending() first, then read another {self.queue_kind}",
            )
        self.close()
        self._receiver, self._name = self._connect(name), name
        return self._receiver

    def _gathered(self, receiver: Receiver) -> list[Delivery]:
        """Return a full batch, or the messages of one second; an empty list after `idle_seconds` without a message."""
        messages: list[Delivery] = []
        size, quiet_since, began = 0, time.monotonic(), 0.0
        while len(messages) < self._limits.rows and size < self._limits.size:
            some = receiver.receive(min(_AT_ONCE, self._limits.rows - len(messages)), _TURN_SECONDS)
            now = time.monotonic()
            messages += some
            size += sum(len(message.value) for message in some)
            if messages:
                began = began or now
                if not some or now - began >= _WINDOW_SECONDS:
                    break
            elif now - quiet_since >= self._limits.idle_seconds:
                break
        return messages
