"""The alerters that this process has registered, whoever runs its pipelines."""

from __future__ import annotations

from ematix_flow.observe.alerts.event import Alerter

_active: list[Alerter] = []


def register_alerter(alerter: Alerter) -> None:
    """Tell this one as well, from now on."""
    if not callable(getattr(alerter, "notify", None)):
        raise TypeError(f"an alerter has a method notify(event); {type(alerter).__name__} has none")
    _active.append(alerter)


def active_alerters() -> list[Alerter]:
    """Those that are registered, in order."""
    return list(_active)


def clear_alerters() -> None:
    """Forget them all."""
    _active.clear()
