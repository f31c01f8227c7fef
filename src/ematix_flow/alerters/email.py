"""Alerts as mail."""

from ematix_flow.observe.alerts.email import EmailAlerter, from_url

__all__ = ["EmailAlerter", "from_url"]
