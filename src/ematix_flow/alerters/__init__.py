"""Alerters: notify people when a pipeline fails, gives up, is late, loads bad data or recovers."""

from typing import TYPE_CHECKING

from ematix_flow.foundation.names import lazy_exports

if TYPE_CHECKING:
    from ematix_flow.alerters.dispatch import Alerts, active_alerters, clear_alerters, register_alerter
    from ematix_flow.alerters.email import EmailAlerter
    from ematix_flow.alerters.event import KINDS, Alerter, AlertEvent
    from ematix_flow.alerters.pagerduty import PagerDutyAlerter
    from ematix_flow.alerters.slack import SlackAlerter
    from ematix_flow.alerters.stdout import StdoutAlerter
    from ematix_flow.alerters.urls import from_url

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

__getattr__ = lazy_exports(
    __name__,
    {
        "KINDS": "ematix_flow.alerters.event",
        "AlertEvent": "ematix_flow.alerters.event",
        "Alerter": "ematix_flow.alerters.event",
        "Alerts": "ematix_flow.alerters.dispatch",
        "EmailAlerter": "ematix_flow.alerters.email",
        "PagerDutyAlerter": "ematix_flow.alerters.pagerduty",
        "SlackAlerter": "ematix_flow.alerters.slack",
        "StdoutAlerter": "ematix_flow.alerters.stdout",
        "active_alerters": "ematix_flow.alerters.dispatch",
        "clear_alerters": "ematix_flow.alerters.dispatch",
        "from_url": "ematix_flow.alerters.urls",
        "register_alerter": "ematix_flow.alerters.dispatch",
    },
)
