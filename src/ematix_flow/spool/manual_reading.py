"""Messages of a receiver as Arrow batches, for reading a queue manually."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ematix_flow.foundation.errors import DeclarationError
from ematix_flow.messages.arrow_batches import batch_from_json
from ematix_flow.spool.receiver import Delivery, Receiver

_WINDOW_SECONDS = 1.0
_TURN_SECONDS = 0.1
_AT_ONCE = 100


@dataclass(frozen=True)
class BatchLimits:
    """The size limits of a batch, and the idle time after which the queue counts as empty."""

    rows: int = 10_000
    size: int = 16 * 1024**2
    idle_seconds: float = 5.0

    @classmethod
    def of(cls, batch_size: int | None, batch_bytes: int | None, idle_timeout_ms: int | None) -> BatchLimits:
        """Return the limits that the user gave, defaults for the rest; raise DeclarationError for an invalid value."""
        options = {"batch_size": batch_size, "batch_bytes": batch_bytes, "idle_timeout_ms": idle_timeout_ms}
        for name, value in options.items():
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value <= 0):
                raise DeclarationError(f"{name} takes a positive whole number, not {value!r}")
        idle = cls.idle_seconds if idle_timeout_ms is None else idle_timeout_ms / 1000
        return cls(batch_size or cls.rows, batch_bytes or cls.size, idle)


@dataclass
class MessageBatches:
    """The messages of one queue, grouped into batches."""

    receiver: Receiver
    pace: BatchLimits
    place: str
    _number: int = 0

    def __iter__(self) -> Iterator[list[Delivery]]:
        while messages := self._gathered():
            yield messages

    def decoded(self, messages: list[Delivery]) -> Any:
        """Return one batch of JSON messages, decoded."""
        first, self._number = self._number, self._number + len(messages)
        places = [message.message_id or f"{self.place}#{first + row}" for row, message in enumerate(messages)]
        return batch_from_json([message.value for message in messages], places)

    def _gathered(self) -> list[Delivery]:
        """Return a full batch, or the messages of one second; an empty list after `idle_seconds` without a message."""
        messages: list[Delivery] = []
        size, quiet_since, began = 0, time.monotonic(), 0.0
        while len(messages) < self.pace.rows and size < self.pace.size:
            some = self.receiver.receive(min(_AT_ONCE, self.pace.rows - len(messages)), _TURN_SECONDS)
            now = time.monotonic()
            messages += some
            size += sum(len(message.value) for message in some)
            if messages:
                began = began or now
                if not some or now - began >= _WINDOW_SECONDS:
                    break
            elif now - quiet_since >= self.pace.idle_seconds:
                break
        return messages
