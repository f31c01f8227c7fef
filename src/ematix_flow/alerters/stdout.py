"""Alerts as lines on stderr."""

from ematix_flow.observe.alerts.stdout import StdoutAlerter

__all__ = ["StdoutAlerter"]
