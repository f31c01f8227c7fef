"""Sends alerts that are news to all alerters at once, bounded in time; keeps the alerters of this process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from ematix_flow.alerters.event import Alerter, AlertEvent
from ematix_flow.alerters.outages import Outage, Outages, update_outages
from ematix_flow.foundation.isolation import WarnOnce

SECONDS = 15.0


class Alerts:
    """The alerters of a run or a scheduler, and the outages that were sent to them."""

    def __init__(self, alerters: Sequence[Alerter] = (), *, known: Outages | None = None, seconds: float = SECONDS,
                 report: Callable[[str], None] | None = None) -> None:  # fmt: skip
        self.alerters = tuple(alerters)
        self._known: dict[str, Outage] = dict(known or {})
        self._seconds = seconds
        self._complaints = WarnOnce(report)
        self._lock = threading.Lock()

    @property
    def outages(self) -> dict[str, Outage]:
        """Return the current outages."""
        with self._lock:
            return dict(self._known)

    def restore_outages(self, outages: Outages) -> None:
        """Set the outages that were already alerted."""
        with self._lock:
            self._known = dict(outages)

    def notify(self, event: AlertEvent) -> bool:
        """Send the event to all alerters unless its outage was alerted already; return whether it was sent."""
        with self._lock:
            self._known, news = update_outages(self._known, event)
        if news is not None:
            self._send(news)
        return news is not None

    def _send(self, event: AlertEvent) -> None:
        threads = [self._started(alerter, event) for alerter in self.alerters]
        deadline = time.monotonic() + self._seconds
        for alerter, thread in zip(self.alerters, threads, strict=True):
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                self._complaints.warn(_name(alerter), f"no answer within {self._seconds:g} s")

    def _started(self, alerter: Alerter, event: AlertEvent) -> threading.Thread:
        def work() -> None:
            with self._complaints.guard(_name(alerter)):
                getattr(alerter, "send", alerter.notify)(event)

        thread = threading.Thread(target=work, name="ematix-flow-alert", daemon=True)
        thread.start()
        return thread


def _name(alerter: Alerter) -> str:
    return f"the alerter {getattr(alerter, 'address', '') or type(alerter).__name__}"


_active: list[Alerter] = []


def register_alerter(alerter: Alerter) -> None:
    """Register an alerter; raise a TypeError if it has no method `notify`."""
    if not callable(getattr(alerter, "notify", None)):
        raise TypeError(f"an alerter has a method notify(event); {type(alerter).__name__} has none")
    _active.append(alerter)


def active_alerters() -> list[Alerter]:
    """Return the registered alerters, in order."""
    return list(_active)


def clear_alerters() -> None:
    """Unregister all alerters."""
    _active.clear()
