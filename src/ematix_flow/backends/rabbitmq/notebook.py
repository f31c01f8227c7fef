"""RabbitMQ for notebooks: batches of a queue as Arrow, and Arrow batches into a queue."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from typing import Any

from ematix_flow.backends.rabbitmq.client import RabbitMQAddress, load_pika
from ematix_flow.backends.rabbitmq.publisher import Publisher
from ematix_flow.backends.rabbitmq.receiver import RabbitMQReceiver
from ematix_flow.backends.rabbitmq.sink import properties
from ematix_flow.declare.connections import RabbitMQConnection
from ematix_flow.foundation.errors import DeclarationError
from ematix_flow.messages.arrow_batches import as_batch_iterator, batch_to_json
from ematix_flow.spool.manual_reading import BatchLimits, MessageBatches

_WITHOUT_LIMIT = 0
_NO_HEARTBEAT = 0


class RabbitMQBackend:
    """A connection to one RabbitMQ server; `RabbitMQBackend.open("amqp://guest:guest@localhost:5672/%2f")`."""

    def __init__(self, connection: RabbitMQConnection, pace: BatchLimits) -> None:
        self._connection, self._pace = connection, pace
        # A user may take long between two batches, and the client answers no heartbeats meanwhile.
        self._address = RabbitMQAddress.of(connection, "notebook", heartbeat=_NO_HEARTBEAT)
        self._receiver: RabbitMQReceiver | None = None
        self._queue: str | None = None
        self._pending: list[Any] = []
        self._undecoded: list[Any] = []

    @classmethod
    def open(
        cls,
        amqp_url: str,
        *,
        consumer_tag: str | None = None,
        batch_size: int | None = None,
        batch_bytes: int | None = None,
        idle_timeout_ms: int | None = None,
    ) -> RabbitMQBackend:
        """Return the server at a url, without connecting; `ping()` does that."""
        load_pika()
        connection = RabbitMQConnection("notebook", amqp_url=amqp_url, consumer_tag=consumer_tag)
        return cls(connection, BatchLimits.of(batch_size, batch_bytes, idle_timeout_ms))

    def ping(self) -> bool:
        """Return True when the server answers and accepts this login; raise a FlowError otherwise."""
        with self._address.channel():
            return True

    @as_batch_iterator
    def iter_arrow_stream(self, query: str) -> Iterator[Any]:
        """Yield batches of JSON messages of a queue; end when nothing has come for `idle_timeout_ms`.

        Messages of returned batches wait for `commit_offsets()` or `nack_pending()`. Messages that cannot be decoded
        wait for the latter alone, so that no unseen message is acknowledged.
        """
        gathering = MessageBatches(self._consumer(query), self._pace, query)
        for messages in gathering:
            tags = [message.tag for message in messages]
            self._undecoded += tags
            batch = gathering.decoded(messages)
            del self._undecoded[-len(tags) :]
            self._pending += tags
            yield batch

    def read_arrow_stream(self, query: str) -> list[Any]:
        """Return the same batches as one list."""
        return list(self.iter_arrow_stream(query))

    def write_arrow_stream(self, queue: str, batches: Iterable[Any]) -> int:
        """Send every row as a JSON message, wait until the broker confirms each, and return their number."""
        run, number = secrets.token_hex(8), iter(range(1 << 62))
        outgoing = (
            (value, properties(f"{run}/{next(number)}", None, []))
            for batch in batches
            for value in batch_to_json(batch)
        )
        with Publisher(self._address, queue) as publisher:
            return publisher.send(outgoing)

    def commit_offsets(self) -> None:
        """Acknowledge every message of the batches returned so far."""
        tags, self._pending = self._pending, []
        if self._receiver is not None and tags:
            self._receiver.ack(tags)
            self._receiver.receive(0, 0.0)  # sends the acknowledgements now

    def nack_pending(self, requeue: bool = True) -> int:
        """Requeue unacknowledged and undecodable messages, or dead-letter them (`requeue=False`); return the count."""
        tags, self._pending, self._undecoded = self._pending + self._undecoded, [], []
        if self._receiver is not None and tags:
            self._receiver.nack(tags, requeue=requeue)
            self._receiver.receive(0, 0.0)
        return len(tags)

    def pending_delivery_count(self) -> int:
        """Return the number of messages that are neither acknowledged nor given back."""
        return len(self._pending) + len(self._undecoded)

    def close(self) -> None:
        """Close the connection; unacknowledged messages are delivered again."""
        if self._receiver is not None:
            self._receiver.close()
        self._receiver, self._queue, self._pending, self._undecoded = None, None, [], []

    def __enter__(self) -> RabbitMQBackend:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"RabbitMQBackend({self._connection!r})"

    def _consumer(self, queue: str) -> RabbitMQReceiver:
        if self._receiver is not None and self._queue == queue:
            return self._receiver
        if waiting := self.pending_delivery_count():
            raise DeclarationError(
                f"{waiting} message(s) of {self._queue!r} wait for an answer",
                hint="commit_offsets() or nack_pending() first, then read another queue",
            )
        self.close()
        receiver = RabbitMQReceiver(self._address, queue, self._connection.resolved().consumer_tag)
        receiver.connect(_WITHOUT_LIMIT)
        self._receiver, self._queue = receiver, queue
        return receiver
