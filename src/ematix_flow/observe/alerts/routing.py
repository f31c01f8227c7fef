"""An alerter that hears only of some kinds or some pipelines."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

from ematix_flow.observe.alerts.event import RECOVERED, Alerter, AlertEvent


@dataclass(frozen=True)
class Routed:
    """Passes on what matches; a recovery matches if it ends something that was passed on."""

    alerter: Alerter
    kinds: tuple[str, ...] = ()
    pipelines: tuple[str, ...] = ()

    @property
    def address(self) -> str:
        """Where the alerter sends to."""
        return str(getattr(self.alerter, "address", type(self.alerter).__name__))

    def send(self, event: AlertEvent) -> None:
        """Pass it on, or not."""
        if self._wants(event):
            getattr(self.alerter, "send", self.alerter.notify)(event)

    def notify(self, event: AlertEvent) -> None:
        """The same, never failing the caller."""
        if self._wants(event):
            self.alerter.notify(event)

    def _wants(self, event: AlertEvent) -> bool:
        about = (event.recovers or self.kinds) if event.kind == RECOVERED else (event.kind,)
        kind = not self.kinds or not set(self.kinds).isdisjoint(about)
        return kind and (not self.pipelines or any(fnmatchcase(event.pipeline, one) for one in self.pipelines))
