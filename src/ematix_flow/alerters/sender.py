"""The base of network alerters: `send` raises on failure, `notify` never does."""

from __future__ import annotations

from abc import ABC, abstractmethod

from ematix_flow.alerters.event import AlertEvent
from ematix_flow.foundation.isolation import WarnOnce


class Sender(ABC):
    """An alerter that sends over a network."""

    address = ""
    """The destination, without secrets."""

    def __init__(self) -> None:
        self._complaints = WarnOnce()

    @abstractmethod
    def send(self, event: AlertEvent) -> None:
        """Send the event; raise Undelivered on failure."""

    def notify(self, event: AlertEvent) -> None:
        """Send the event; a failure is logged once, however often it occurs."""
        with self._complaints.guard(f"the alerter {self.address}"):
            self.send(event)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.address!r})"
