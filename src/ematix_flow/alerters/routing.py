"""An alerter limited to some kinds or some pipelines."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

from ematix_flow.alerters.event import RECOVERED, Alerter, AlertEvent


@dataclass(frozen=True)
class FilteredAlerter:
    """An alerter that forwards matching events; a recovery matches if it ends an event that was forwarded."""

    alerter: Alerter
    kinds: tuple[str, ...] = ()
    pipelines: tuple[str, ...] = ()

    @property
    def address(self) -> str:
        """Return the address of the alerter."""
        return str(getattr(self.alerter, "address", type(self.alerter).__name__))

    def send(self, event: AlertEvent) -> None:
        """Forward the event if it matches; raise on failure."""
        if self._matches(event):
            getattr(self.alerter, "send", self.alerter.notify)(event)

    def notify(self, event: AlertEvent) -> None:
        """Forward the event if it matches, by the alerter's `notify`, which does not raise."""
        if self._matches(event):
            self.alerter.notify(event)

    def _matches(self, event: AlertEvent) -> bool:
        about = (event.recovers or self.kinds) if event.kind == RECOVERED else (event.kind,)
        kind = not self.kinds or not set(self.kinds).isdisjoint(about)
        return kind and (not self.pipelines or any(fnmatchcase(event.pipeline, one) for one in self.pipelines))
