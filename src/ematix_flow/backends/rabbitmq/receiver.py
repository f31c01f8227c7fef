"""A consumer of one queue, for the spool."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from ematix_flow.backends.rabbitmq.client import RabbitMQAddress, close, message_of
from ematix_flow.declare.connections import RabbitMQConnection
from ematix_flow.foundation.errors import Unreachable
from ematix_flow.spool.queue_listener import QueueListener
from ematix_flow.spool.receiver import Delivery

_MOST_PREFETCHED = 65_535


def listener(connection: RabbitMQConnection, queue: str, name: str) -> QueueListener:
    """Return the listener on a queue for the workflow of that name."""
    return QueueListener(RabbitMQReceiver(RabbitMQAddress.of(connection, name), queue), queue)


class RabbitMQReceiver:
    """A consumer of one queue; tags are increasing numbers."""

    renew_seconds: float | None = None
    rejects_at_once = True

    def __init__(self, address: RabbitMQAddress, queue: str, consumer_tag: str | None = None) -> None:
        self._address, self._queue, self._consumer_tag = address, queue, consumer_tag
        self._link: Any = None
        self._channel: Any = None
        self._inbox: deque[tuple[Any, Any, bytes]] = deque()
        self._open: dict[int, None] = {}
        """Unanswered tags, the oldest first."""
        self._waiting: int | None = None
        self._is_cancelled = False

    def connect(self, window: int) -> None:
        self._link = self._address.connect()
        with self._address.translated_errors(self._queue):
            self._channel = self._link.channel()
            declared = self._channel.queue_declare(self._queue, passive=True)
            self._waiting = int(declared.method.message_count)
            self._channel.basic_qos(prefetch_count=min(window, _MOST_PREFETCHED))
            self._channel.add_on_cancel_callback(self._cancelled)
            named = {"consumer_tag": self._consumer_tag} if self._consumer_tag else {}
            self._channel.basic_consume(self._queue, self._arrived, **named)

    def waiting(self) -> int | None:
        """Return how many messages waited when the consumer connected."""
        return self._waiting

    def receive(self, limit: int, timeout: float) -> Sequence[Delivery]:
        with self._address.translated_errors(self._queue):
            self._link.process_data_events(time_limit=0 if self._inbox and limit else timeout)
        if self._is_cancelled:
            raise Unreachable(
                f"queue {self._queue!r} was taken away at {self._address.at}",
                hint="declare it again: the stream goes on",
            )
        return [message_of(*self._inbox.popleft()) for _ in range(min(limit, len(self._inbox)))]

    def ack(self, tags: Sequence[Any]) -> None:
        done = set(tags)
        oldest = self._oldest_of(done)
        with self._address.translated_errors(self._queue):
            if oldest is not None:
                self._channel.basic_ack(oldest, multiple=True)
            for tag in sorted(done):
                if oldest is None or tag > oldest:
                    self._channel.basic_ack(tag)
        for tag in done:
            self._open.pop(tag, None)

    def _oldest_of(self, done: set[Any]) -> int | None:
        """Return the last of the oldest deliveries that are all done: one acknowledgement covers them."""
        last = None
        for tag in self._open:
            if tag not in done:
                break
            last = tag
        return last

    def nack(self, tags: Sequence[Any], *, requeue: bool) -> None:
        with self._address.translated_errors(self._queue):
            for tag in tags:
                self._channel.basic_nack(tag, requeue=requeue)
        for tag in tags:
            self._open.pop(tag, None)

    def extend(self, tags: Sequence[Any]) -> None:
        """Do nothing: RabbitMQ has no deadline that could be extended."""

    def close(self) -> None:
        if self._link is not None:
            close(self._link)
            self._link = None

    def _arrived(self, _channel: Any, method: Any, properties: Any, body: bytes) -> None:
        self._open[method.delivery_tag] = None
        self._inbox.append((method, properties, body))

    def _cancelled(self, _frame: Any) -> None:
        self._is_cancelled = True
