"""Consumption of broker messages that trigger workflows; a message is confirmed once its run is requested."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ematix_flow.declare.message import Message


class Listener(Protocol):
    """A consumer of topics or of a queue, used by one thread; every failure is raised as a FlowError."""

    def receive(self, limit: int, seconds: float) -> Sequence[Message]:
        """Return up to `limit` messages as soon as one is available; empty when none arrived within `seconds`."""

    def confirm(self) -> None:
        """Acknowledge all received messages; without it the broker delivers them again after `close`."""

    def close(self) -> None:
        """Close the connection to the broker; never raises."""


ListenerMaker = Callable[[Any, str, str], Listener]
"""Makes a listener from a connection, a topic or queue, and the name under which it registers with the broker."""
