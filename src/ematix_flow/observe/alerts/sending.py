"""What alerters that send over a network share: `send` says what went wrong, `notify` never fails the caller."""

from __future__ import annotations

from abc import ABC, abstractmethod

from ematix_flow.observe.alerts.event import AlertEvent
from ematix_flow.observe.isolation import Complaints


class Sender(ABC):
    """An alerter on a network."""

    address = ""
    """Where it sends to, without secrets."""

    def __init__(self) -> None:
        self._complaints = Complaints()

    @abstractmethod
    def send(self, event: AlertEvent) -> None:
        """Send it, or raise why not."""

    def notify(self, event: AlertEvent) -> None:
        """Send it; a failure is logged once, however often it happens."""
        with self._complaints.isolated(f"the alerter {self.address}"):
            self.send(event)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.address!r})"
