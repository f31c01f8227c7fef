"""Alerts as JSON, posted to any address."""

from __future__ import annotations

import base64
from urllib.parse import parse_qsl, urlsplit

from ematix_flow.alerters.event import AlertEvent, Sender
from ematix_flow.alerters.text import alert_lines, alert_title
from ematix_flow.declare.connections import urls
from ematix_flow.foundation.errors import ConfigError
from ematix_flow.foundation.http import post_json, site_of
from ematix_flow.foundation.redact import mask, remember_secret

_TELLING = 16  # a path segment of this length is likely a key rather than a name


class WebhookAlerter(Sender):
    """An alerter that posts one JSON object: `text` for people, and every field by name for programs.

    A user and password in the address are sent as basic authorization; other headers may be given.
    """

    def __init__(self, url: str, *, timeout: float = 5.0, headers: dict[str, str] | None = None) -> None:
        super().__init__()
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError("a webhook begins with http:// or https://", hint="for example https://host/path")
        self._headers = dict(headers or {})
        url_parts = urls.split(url)
        if url_parts.user or url_parts.password:
            login = base64.b64encode(f"{url_parts.user}:{url_parts.password}".encode()).decode()
            self._headers.setdefault("Authorization", f"Basic {login}")
            remember_secret(login)
            remember_secret(url_parts.password)
        for secret in self._headers.values():
            remember_secret(secret.rpartition(" ")[2])
        for _, value in parse_qsl(parts.query):
            remember_secret(value)
        for segment in parts.path.split("/"):
            if len(segment) >= _TELLING:
                remember_secret(segment)
        self._url = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
        self._timeout = timeout
        self.address = site_of(url)

    def send(self, event: AlertEvent) -> None:
        """Post the event; raise Undelivered on failure."""
        body = {"title": mask(alert_title(event)), "text": mask("\n".join(alert_lines(event))), **event.to_dict()}
        post_json(self._url, body, headers=self._headers, timeout=self._timeout)
