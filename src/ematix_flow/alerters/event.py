"""The event of an alert, the interface of alerters, and the base of those that send over a network."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Protocol, runtime_checkable

from ematix_flow.foundation.clock import in_utc
from ematix_flow.foundation.errors import DeclarationError
from ematix_flow.foundation.isolation import WarnOnce
from ematix_flow.foundation.names import did_you_mean
from ematix_flow.foundation.redact import mask

FAILED, GAVE_UP, RECOVERED = "failed", "gave_up", "recovered"
QUALITY_FAILED, SLA_BREACHED, BRAKE = "quality_failed", "sla_breached", "brake"
KINDS = (FAILED, GAVE_UP, RECOVERED, QUALITY_FAILED, SLA_BREACHED, BRAKE)
OF_RUNS = (FAILED, GAVE_UP, BRAKE)
"""The kinds that a successful run ends; late and bad data end when they are checked again."""

_TEXTS = ("error_message", "error_type", "run_id", "where", "step", "hint", "command")


@dataclass(frozen=True)
class AlertEvent:
    """A problem or recovery of a pipeline; known secrets in its texts are masked."""

    kind: str
    pipeline: str
    timestamp: datetime
    error_message: str = ""
    error_type: str = ""
    attempt_count: int = 0
    max_attempts: int = 0
    gave_up: bool = False
    run_id: str = ""
    where: str = ""
    """The user's file and line: `pipelines.py:41`."""
    step: str = ""
    since: datetime | None = None
    """The start of the outage."""
    hint: str = ""
    command: str = ""
    """The command that shows more; derived from the run id if empty."""
    recovers: tuple[str, ...] = ()
    """The kinds that a recovery ends, all if empty; in a sent event, the kinds that were alerted."""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise DeclarationError(f"no alert is of kind {self.kind!r}", hint=did_you_mean(self.kind, KINDS))
        for name in _TEXTS:
            object.__setattr__(self, name, mask(str(getattr(self, name) or "")))
        object.__setattr__(self, "timestamp", in_utc(self.timestamp))
        if self.since is not None:
            object.__setattr__(self, "since", in_utc(self.since))

    @property
    def more(self) -> str:
        """Return the command that shows more."""
        if self.command:
            return self.command
        return f"flow runs show {self.run_id[:8]}" if self.run_id else f"flow runs list --pipeline {self.pipeline}"

    def to_dict(self) -> dict[str, Any]:
        """Return all fields, ready for JSON, with secrets masked that became known since."""
        moments = {"timestamp": self.timestamp.isoformat(), "since": self.since.isoformat() if self.since else None}
        known = {**asdict(self), **moments, "command": self.more}
        del known["recovers"]  # which kinds end is of no use outside this process
        return {name: mask(value) if isinstance(value, str) else value for name, value in known.items()}


@runtime_checkable
class Alerter(Protocol):
    """A receiver of alerts."""

    def notify(self, event: AlertEvent) -> None:
        """Send the event."""


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
