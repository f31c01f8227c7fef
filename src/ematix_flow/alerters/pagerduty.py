"""Alerts as incidents of PagerDuty (Events API v2): opened by problems, resolved by recovery."""

from __future__ import annotations

import socket
from typing import Any

from ematix_flow.alerters.event import BRAKE, GAVE_UP, QUALITY_FAILED, RECOVERED, SLA_BREACHED, AlertEvent, Sender
from ematix_flow.alerters.text import alert_title
from ematix_flow.declare.connections import urls
from ematix_flow.foundation.errors import ConfigError
from ematix_flow.foundation.http import post_json
from ematix_flow.foundation.names import did_you_mean
from ematix_flow.foundation.redact import mask, remember_secret

ENDPOINT = "https://events.pagerduty.com/v2/enqueue"
_PARAMETERS = ("service", "severity", "endpoint")
SEVERITIES = ("critical", "error", "warning", "info")
_SEVERITY = {GAVE_UP: "critical", BRAKE: "critical", SLA_BREACHED: "warning", QUALITY_FAILED: "warning"}
_LONGEST_SUMMARY, _LONGEST_KEY = 1024, 255


class PagerDutyAlerter(Sender):
    """An alerter with one incident per service and pipeline; `endpoint` is for a relay or a test."""

    def __init__(self, routing_key: str, *, service_label: str = "ematix-flow", default_severity: str = "error",
                 timeout: float = 5.0, endpoint: str = ENDPOINT) -> None:  # fmt: skip
        super().__init__()
        if not routing_key:
            raise ConfigError("PagerDuty needs a routing key", hint="write pagerduty://${PAGERDUTY_KEY}")
        if default_severity not in SEVERITIES:
            raise ConfigError(
                f"PagerDuty knows no severity {default_severity!r}", hint=did_you_mean(default_severity, SEVERITIES)
            )
        remember_secret(routing_key)
        self.routing_key = routing_key
        self.service_label = service_label
        self.default_severity = default_severity
        self._timeout = timeout
        self._endpoint = endpoint
        self.address = "pagerduty://"

    def send(self, event: AlertEvent) -> None:
        """Trigger or resolve the incident; raise Undelivered on failure."""
        post_json(self._endpoint, self.body(event), timeout=self._timeout)

    def body(self, event: AlertEvent) -> dict[str, Any]:
        """Return the request body of Events API v2."""
        key = f"{self.service_label}:{event.pipeline}"[:_LONGEST_KEY]
        if event.kind == RECOVERED:
            return {"routing_key": self.routing_key, "event_action": "resolve", "dedup_key": key}
        return {
            "routing_key": self.routing_key,
            "event_action": "trigger",
            "dedup_key": key,
            "client": "ematix-flow",
            "payload": {
                "summary": mask(_summary(event))[:_LONGEST_SUMMARY],
                "source": socket.gethostname(),
                "severity": _SEVERITY.get(event.kind, self.default_severity),
                "timestamp": event.timestamp.isoformat(),
                "component": event.pipeline,
                "group": self.service_label,
                "class": event.kind,
                "custom_details": event.to_dict(),
            },
        }


def from_url(url: str) -> PagerDutyAlerter:
    """Return the alerter of `pagerduty://KEY[?service=NAME][&severity=critical|error|warning|info][&endpoint=URL]`."""
    parts = urls.split(url)
    urls.refuse_parameters(parts, _PARAMETERS, of="pagerduty://")
    return PagerDutyAlerter(
        parts.host,
        service_label=parts.params.get("service", "ematix-flow"),
        default_severity=parts.params.get("severity", "error"),
        endpoint=parts.params.get("endpoint", ENDPOINT),
    )


def _summary(event: AlertEvent) -> str:
    why = event.error_message.strip().splitlines()
    return f"{alert_title(event)}: {why[0]}" if why else alert_title(event)
