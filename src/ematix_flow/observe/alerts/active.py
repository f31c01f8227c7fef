"""The alerters registered in this process, which apply to all its pipelines."""

from __future__ import annotations

from ematix_flow.observe.alerts.event import Alerter

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
