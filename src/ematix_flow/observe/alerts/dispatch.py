"""Dispatch of alerts to all alerters in parallel, with a time limit; a failing alerter affects nothing else."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from ematix_flow.observe.alerts.event import Alerter, AlertEvent
from ematix_flow.observe.alerts.outages import Outage, Outages, admit
from ematix_flow.observe.isolation import Complaints

SECONDS = 15.0


class Alerts:
    """The alerters of a run or a scheduler, and the outages that were sent to them."""

    def __init__(self, alerters: Sequence[Alerter] = (), *, known: Outages | None = None, seconds: float = SECONDS,
                 say: Callable[[str], None] | None = None) -> None:  # fmt: skip
        self.alerters = tuple(alerters)
        self._known: dict[str, Outage] = dict(known or {})
        self._seconds = seconds
        self._complaints = Complaints(say)
        self._lock = threading.Lock()

    @property
    def outages(self) -> dict[str, Outage]:
        """Return the current outages; save them with `outages.to_plain` to avoid duplicate alerts after a restart."""
        with self._lock:
            return dict(self._known)

    def know(self, outages: Outages) -> None:
        """Set the outages that were already alerted."""
        with self._lock:
            self._known = dict(outages)

    def tell(self, event: AlertEvent) -> bool:
        """Send the event to all alerters unless its outage was alerted already; return whether it was sent."""
        with self._lock:
            self._known, news = admit(self._known, event)
        if news is not None:
            self._send(news)
        return news is not None

    def _send(self, event: AlertEvent) -> None:
        threads = [self._started(alerter, event) for alerter in self.alerters]
        deadline = time.monotonic() + self._seconds
        for alerter, thread in zip(self.alerters, threads, strict=True):
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                self._complaints.about(_name(alerter), f"no answer within {self._seconds:g} s")

    def _started(self, alerter: Alerter, event: AlertEvent) -> threading.Thread:
        def work() -> None:
            with self._complaints.isolated(_name(alerter)):
                getattr(alerter, "send", alerter.notify)(event)

        thread = threading.Thread(target=work, name="ematix-flow-alert", daemon=True)
        thread.start()
        return thread


def _name(alerter: Alerter) -> str:
    return f"the alerter {getattr(alerter, 'address', '') or type(alerter).__name__}"
