"""RabbitMQ for notebooks: batches of a queue as Arrow, and Arrow batches into a queue."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import Any

from ematix_flow.backends.rabbitmq.client import RabbitMQAddress, load_pika
from ematix_flow.backends.rabbitmq.publisher import Publisher
from ematix_flow.backends.rabbitmq.receiver import RabbitMQReceiver
from ematix_flow.backends.rabbitmq.sink import properties
from ematix_flow.declare.connections import RabbitMQConnection
from ematix_flow.messages.arrow_batches import batch_to_json
from ematix_flow.spool.manual_reading import WITHOUT_LIMIT, BatchLimits, QueueBackend

_NO_HEARTBEAT = 0


class RabbitMQBackend(QueueBackend):
    """A connection to one RabbitMQ server; `RabbitMQBackend.open("amqp://guest:guest@localhost:5672/%2f")`."""

    queue_kind = "queue"

    def __init__(self, connection: RabbitMQConnection, limits: BatchLimits) -> None:
        super().__init__(connection, limits)
        # A user may take long between two batches, and the client answers no heartbeats meanwhile.
        self._address = RabbitMQAddress.of(connection, "notebook", heartbeat=_NO_HEARTBEAT)

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

    def nack_pending(self, requeue: bool = True) -> int:
        """Requeue unacknowledged and undecodable messages, or dead-letter them (`requeue=False`); return the count."""
        return self._nack(requeue=requeue)

    def pending_delivery_count(self) -> int:
        """Return the number of messages that are neither acknowledged nor given back."""
        return self._pending_count()

    def _connect(self, name: str) -> RabbitMQReceiver:
        receiver = RabbitMQReceiver(self._address, name, self._connection.resolved().consumer_tag)
        receiver.connect(WITHOUT_LIMIT)
        return receiver

    def _flush(self) -> None:
        if self._receiver is not None:
            self._receiver.receive(0, 0.0)
