"""Alerts as messages of a Slack incoming webhook."""

from __future__ import annotations

from urllib.parse import urlsplit

from ematix_flow.alerters.event import FAILED, GAVE_UP, RECOVERED, AlertEvent, Sender
from ematix_flow.alerters.text import alert_facts, alert_title
from ematix_flow.foundation.errors import ConfigError
from ematix_flow.foundation.http import post_json, site_of
from ematix_flow.foundation.redact import mask, remember_secret

_SIGNS = {RECOVERED: ":white_check_mark:", FAILED: ":x:", GAVE_UP: ":rotating_light:"}


class SlackAlerter(Sender):
    """An alerter that posts `{"text": …}` to an incoming webhook.

    `endpoint` (`http://relay:8080`) replaces scheme and host, for a relay or a test; the path stays.
    """

    def __init__(self, webhook_url: str, *, timeout: float = 5.0, endpoint: str | None = None) -> None:
        super().__init__()
        parts = urlsplit(webhook_url)
        if parts.scheme != "https" or not parts.netloc:
            raise ConfigError("a Slack webhook begins with https://", hint="write slack://hooks.slack.com/services/…")
        self.webhook_url = webhook_url
        self._url = webhook_url if endpoint is None else endpoint.rstrip("/") + parts.path
        self._timeout = timeout
        self.address = f"slack://{site_of(webhook_url).partition('://')[2]}"
        remember_secret(parts.path.rpartition("/")[2])

    def send(self, event: AlertEvent) -> None:
        """Post the message; raise Undelivered on failure."""
        post_json(self._url, {"text": message(event)}, timeout=self._timeout)


def message(event: AlertEvent) -> str:
    """Return the alert in Slack's notation, escaped so that it cannot mention a channel or contain a link."""
    head = f"{_SIGNS.get(event.kind, ':warning:')} *{_escaped(alert_title(event))}*"
    rest = [f"*{name}* {_fact(name, text)}" for name, text in alert_facts(event)]
    return mask("\n".join([head, *rest]))


def _fact(name: str, text: str) -> str:
    shown = _escaped(text)
    return f"`{shown}`" if name in ("more", "where") else shown


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
