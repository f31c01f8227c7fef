"""A listener on a queue whose broker expects an acknowledgement of every delivery."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from ematix_flow.declare.message import Message
from ematix_flow.spool.receiver import Receiver, identity

_WINDOW = 100


class QueueListener:
    """The messages of one receiver; unconfirmed ones are delivered again when the connection ends.

    A queue has no offsets. A second delivery is recognised by the message's id and content; a message without an id
    fires again when it is delivered again.
    """

    def __init__(self, receiver: Receiver, queue: str) -> None:
        self._receiver, self._queue = receiver, queue
        self._tags: list[Any] = []
        receiver.connect(_WINDOW)

    def receive(self, limit: int, seconds: float) -> Sequence[Message]:
        deliveries = self._receiver.receive(limit, seconds)
        self._tags += [item.tag for item in deliveries]
        return [
            Message(
                item.value,
                f"{self._queue}@{identity(item.message_id, item.value) or uuid.uuid4()}",
                self._queue,
                item.key,
                tuple(item.headers or ()),
                item.timestamp,
                len(item.value),
            )
            for item in deliveries
        ]

    def confirm(self) -> None:
        tags, self._tags = self._tags, []
        if tags:
            self._receiver.ack(tags)

    def close(self) -> None:
        self._receiver.close()
