"""Alerters from their addresses."""

from __future__ import annotations

from ematix_flow.alerters.event import Alerter
from ematix_flow.alerters.slack import SlackAlerter
from ematix_flow.alerters.stdout import StdoutAlerter
from ematix_flow.alerters.webhook import WebhookAlerter
from ematix_flow.declare.connections import urls
from ematix_flow.foundation.errors import ConfigError

SCHEMES = ("stdout", "slack", "https", "http", "email", "pagerduty")
_SLACK_HOST = "hooks.slack.com"


def from_url(url: str, *, headers: dict[str, str] | None = None) -> Alerter:
    """Return the alerter at this address; references `${…}` in it are expanded now.

    >>> from_url("stdout://")
    StdoutAlerter()
    """
    if not url.strip():
        raise ConfigError("an alerter has an empty address", hint=urls.scheme_hint("", SCHEMES))
    filled = urls.expand_url(url.strip())
    scheme = urls.scheme_of(filled)
    if scheme not in SCHEMES or "://" not in filled:
        what = f"no alerter has the address {scheme}://" if scheme else "an alerter's address begins with its scheme"
        raise ConfigError(what, hint=urls.scheme_hint(scheme, SCHEMES))
    try:
        return _make_alerter(scheme, filled, headers)
    except urls.UrlError as error:
        raise ConfigError(f"the alerter {scheme}://… {error}") from None


def _make_alerter(scheme: str, url: str, headers: dict[str, str] | None) -> Alerter:
    if scheme == "stdout":
        return StdoutAlerter()
    if scheme == "slack":
        return _slack(url)
    if scheme == "email":
        from ematix_flow.alerters import email

        return email.from_url(url)
    if scheme == "pagerduty":
        from ematix_flow.alerters import pagerduty

        return pagerduty.from_url(url)
    if urls.split(url).host == _SLACK_HOST:
        return SlackAlerter(url)
    return WebhookAlerter(url, headers=headers)


def _slack(url: str) -> SlackAlerter:
    parts = urls.split(url)
    urls.refuse_parameters(parts, ("endpoint",), of="slack://")
    if not parts.host or not parts.path:
        raise ConfigError("slack:// names no webhook", hint="write slack://hooks.slack.com/services/…")
    port = f":{parts.port}" if parts.port else ""
    return SlackAlerter(f"https://{parts.host}{port}/{parts.path}", endpoint=parts.params.get("endpoint"))
