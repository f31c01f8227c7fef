"""Alerts as JSON to any address."""

from ematix_flow.observe.alerts.webhook import WebhookAlerter

__all__ = ["WebhookAlerter"]
