"""A queue of RabbitMQ as the target of a stream."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

from ematix_flow.backends.rabbitmq.client import RabbitMQAddress, load_pika, queue_depth
from ematix_flow.backends.rabbitmq.errors import translate
from ematix_flow.backends.rabbitmq.publisher import Outgoing, Publisher
from ematix_flow.contract.stream import BrokerJob, BrokerSink
from ematix_flow.dataplane.arrow_values import row_batch
from ematix_flow.dataplane.task_errors import staging_task
from ematix_flow.declare.connections import RabbitMQConnection
from ematix_flow.foundation import fault
from ematix_flow.messages.message_ids import COLUMNS, KEY, messages

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


_PERSISTENT = 2


class RabbitMQSink(BrokerSink):
    """The queues of one connection as targets; at least once, with the same ids when a batch is sent again."""

    def __init__(self, connection: RabbitMQConnection) -> None:
        self._connection = connection

    def check(self, place: str) -> None:
        """Raise a FlowError when the server does not answer or the queue does not exist."""
        queue_depth(RabbitMQAddress.of(self._connection, "check"), place)

    def max_message_bytes(self, place: str, *, exactly_once: bool = False) -> int | None:
        """Return None: the broker does not report its limit."""
        return None

    def send(self, job: BrokerJob, frame: DataFrame) -> int:
        """Send every row from the tasks, wait for the broker's confirms, and return the number sent."""
        address = RabbitMQAddress.of(self._connection, job.stream)
        work = staging_task(
            _sender(address, job, os.getpid()), lambda exc: translate(exc, at=address.at, queue=job.place)
        )
        outcome = frame.selectExpr(*COLUMNS).mapInArrow(work, "rows BIGINT").collect()
        return sum(row["rows"] for row in outcome)


def _sender(address: RabbitMQAddress, job: BrokerJob, driver: int) -> Any:
    def send(batches: Iterator[Any]) -> Iterator[Any]:
        outgoing = _outgoing(job, batches)
        first = next(outgoing, None)
        if first is None:
            return
        with Publisher(address, job.place) as publisher:
            if fault.is_armed("mid_stage"):
                publisher.send([first])
                fault.point("mid_stage", victim=driver)
            sent = publisher.send(chain([first], outgoing))
        yield row_batch({"rows": sent})

    return send


def _outgoing(job: BrokerJob, batches: Iterator[Any]) -> Iterator[Outgoing]:
    for name, key, value, headers in messages(job, batches):
        yield value, properties(name, key, headers)


def properties(message_id: str, key: bytes | None, headers: list[tuple[str, bytes]]) -> Any:
    """Return the properties of a message that survives a restart of the broker."""
    pika = load_pika()
    text_headers = {name: _text_or_bytes(value) for name, value in headers}
    if key is not None:
        text_headers[KEY] = _text_or_bytes(key)
    return pika.BasicProperties(
        delivery_mode=_PERSISTENT, message_id=message_id, headers=text_headers or None, app_id="ematix-flow"
    )


def _text_or_bytes(value: bytes) -> str | bytes:
    """Return text where the bytes are UTF-8, because other consumers expect it; the bytes otherwise."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value
