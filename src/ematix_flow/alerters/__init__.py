"""Alerters: receivers of alerts when a pipeline fails, gives up, is late, loads bad data, or recovers."""

from ematix_flow.observe.alerts.active import active_alerters, clear_alerters, register_alerter
from ematix_flow.observe.alerts.dispatch import Alerts
from ematix_flow.observe.alerts.email import EmailAlerter
from ematix_flow.observe.alerts.event import KINDS, Alerter, AlertEvent
from ematix_flow.observe.alerts.pagerduty import PagerDutyAlerter
from ematix_flow.observe.alerts.slack import SlackAlerter
from ematix_flow.observe.alerts.stdout import StdoutAlerter
from ematix_flow.observe.alerts.urls import from_url

__all__ = [
    "KINDS",
    "AlertEvent",
    "Alerter",
    "Alerts",
    "EmailAlerter",
    "PagerDutyAlerter",
    "SlackAlerter",
    "StdoutAlerter",
    "active_alerters",
    "clear_alerters",
    "from_url",
    "register_alerter",
]
