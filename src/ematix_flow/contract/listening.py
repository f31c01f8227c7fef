"""Listening to a broker: messages that fire workflows, one after the other, confirmed when their runs are requested."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ematix_flow.declare.message import Message


class Listener(Protocol):
    """A consumer of topics or of a queue; used by one thread. Whatever goes wrong is raised as a FlowError."""

    def receive(self, limit: int, seconds: float) -> Sequence[Message]:
        """Return up to `limit` messages, as soon as there is one; nothing when none came in so many seconds."""

    def confirm(self) -> None:
        """Tell the broker that everything which was received is done; else it is delivered again after `close`."""

    def close(self) -> None:
        """Leave; never raises."""


ListenerMaker = Callable[[Any, str, str], Listener]
"""Makes a listener of a connection, of a topic or queue, and of the name that the broker knows it by."""
