"""Alerts as incidents of PagerDuty."""

from ematix_flow.observe.alerts.pagerduty import PagerDutyAlerter, from_url

__all__ = ["PagerDutyAlerter", "from_url"]
