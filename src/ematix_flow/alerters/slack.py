"""Alerts to a Slack incoming webhook."""

from ematix_flow.observe.alerts.slack import SlackAlerter

__all__ = ["SlackAlerter"]
