"""Slack, webhooks and PagerDuty: the requests, read back from a server that got them."""

from __future__ import annotations

import base64
import logging
from typing import Any

import pytest

from ematix_flow.alerters import from_url
from ematix_flow.alerters.pagerduty import PagerDutyAlerter
from ematix_flow.alerters.slack import SlackAlerter
from ematix_flow.alerters.webhook import WebhookAlerter
from ematix_flow.foundation import redact
from ematix_flow.foundation.errors import ConfigError
from ematix_flow.foundation.http import Undelivered
from tests.observe.listener import Listener
from tests.observe.samples import event, full_event

PATH = "/services/T000/B000/xoxKEY123456"


def slack_at(listener: Listener) -> Any:
    return from_url(f"slack://hooks.slack.com{PATH}?endpoint={listener.url}")


def test_slack_gets_one_text_at_the_webhooks_own_path(listener: Listener) -> None:
    slack_at(listener).notify(full_event())
    (request,) = listener.requests
    assert (request.method, request.path) == ("POST", PATH)
    assert request.headers["Content-Type"] == "application/json; charset=utf-8"
    assert list(request.json) == ["text"]
    assert request.json["text"].splitlines() == [
        ":x: *orders failed (attempt 2 of 3)*",
        "*error* Unreachable: no server answers at db:5432",
        "*where* `pipelines.py:41`",
        "*while* stage",
        "*since* 2026-03-01 10:45:00 UTC (1 h 15 min)",
        "*attempts* 2 of 3",
        "*next* is the server running?",
        "*more* `flow runs show 1a2b3c4d`",
    ]


def test_an_error_message_cannot_mention_a_channel_or_make_a_link(listener: Listener) -> None:
    slack_at(listener).notify(event(error_message="<!channel> <https://x|click> & more"))
    text = listener.requests[0].json["text"]
    assert "&lt;!channel&gt; &lt;https://x|click&gt; &amp; more" in text
    assert "<" not in text


def test_a_slack_webhook_without_tls_is_refused() -> None:
    with pytest.raises(ValueError, match="https://"):
        SlackAlerter("http://hooks.slack.com/services/x")


def test_slacks_own_https_address_is_slack_and_any_other_one_a_webhook() -> None:
    assert isinstance(from_url(f"https://hooks.slack.com{PATH}"), SlackAlerter)
    assert isinstance(from_url("https://example.com/hook"), WebhookAlerter)


def test_a_webhook_gets_text_for_people_and_fields_for_programs(listener: Listener) -> None:
    from_url(f"{listener.url}/hooks/flow").notify(full_event())
    (request,) = listener.requests
    assert request.path == "/hooks/flow"
    body = request.json
    assert body["title"] == "orders failed (attempt 2 of 3)"
    assert "flow runs show 1a2b3c4d" in body["text"]
    fields = ("kind", "pipeline", "error_type", "where", "step", "attempt_count", "max_attempts", "command")
    assert [body[name] for name in fields] == [
        "failed", "orders", "Unreachable", "pipelines.py:41", "stage", 2, 3, "flow runs show 1a2b3c4d",
    ]  # fmt: skip
    assert (body["timestamp"], body["since"]) == ("2026-03-01T12:00:00+00:00", "2026-03-01T10:45:00+00:00")


def test_a_webhooks_login_travels_as_authorization_and_not_in_the_address(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK_PW", "p@ss/w:rd")
    from_url(listener.url.replace("://", "://ana:${HOOK_PW}@") + "/hook").notify(event())
    (request,) = listener.requests
    kind, login = request.headers["Authorization"].split()
    assert (kind, base64.b64decode(login).decode()) == ("Basic", "ana:p@ss/w:rd")
    assert "ana" not in request.path


def test_headers_may_be_given(listener: Listener) -> None:
    WebhookAlerter(f"{listener.url}/x", headers={"Authorization": "Bearer tok-en-123"}).notify(event())
    assert listener.requests[0].headers["Authorization"] == "Bearer tok-en-123"
    assert redact.mask("tok-en-123") == "***"


def test_pagerduty_opens_an_incident_per_service_and_pipeline(listener: Listener) -> None:
    from_url(f"pagerduty://R0uTingKey42?service=shop&endpoint={listener.url}/v2/enqueue").notify(full_event())
    (request,) = listener.requests
    assert request.path == "/v2/enqueue"
    body = request.json
    assert (body["routing_key"], body["event_action"], body["dedup_key"]) == ("R0uTingKey42", "trigger", "shop:orders")
    payload = body["payload"]
    assert payload["summary"] == "orders failed (attempt 2 of 3): no server answers at db:5432"
    assert (payload["severity"], payload["component"], payload["class"]) == ("error", "orders", "failed")
    assert payload["timestamp"] == "2026-03-01T12:00:00+00:00"
    assert payload["source"]
    assert payload["custom_details"]["command"] == "flow runs show 1a2b3c4d"


@pytest.mark.parametrize(
    ("kind", "severity"),
    [("gave_up", "critical"), ("brake", "critical"), ("sla_breached", "warning"), ("failed", "info")],
)
def test_the_kind_decides_the_severity(listener: Listener, kind: str, severity: str) -> None:
    from_url(f"pagerduty://KEY1234?severity=info&endpoint={listener.url}/").notify(event(kind))
    assert listener.requests[0].json["payload"]["severity"] == severity


def test_recovery_resolves_the_incident(listener: Listener) -> None:
    from_url(f"pagerduty://KEY1234?endpoint={listener.url}/").notify(event("recovered"))
    assert listener.requests[0].json == {
        "routing_key": "KEY1234", "event_action": "resolve", "dedup_key": "ematix-flow:orders",
    }  # fmt: skip


def test_pagerduty_is_reached_at_its_own_address_by_default() -> None:
    assert PagerDutyAlerter("KEY1234")._endpoint == "https://events.pagerduty.com/v2/enqueue"


@pytest.mark.parametrize("status", [429, 503])
def test_a_fault_that_may_pass_is_tried_once_more(listener: Listener, status: int) -> None:
    listener.statuses = [status, 200]
    slack_at(listener).send(event())
    assert len(listener.requests) == 2


def test_a_refusal_is_not_tried_again_and_reported_without_the_key(listener: Listener) -> None:
    listener.statuses, listener.answer = [404], f"no_service for {PATH}"
    with pytest.raises(Undelivered) as caught:
        slack_at(listener).send(event())
    assert len(listener.requests) == 1
    assert "404" in str(caught.value)
    assert "xoxKEY123456" not in str(caught.value)


def test_a_redirect_is_not_followed(listener: Listener) -> None:
    with Listener() as elsewhere:
        listener.statuses, listener.headers = [302], {"Location": f"{elsewhere.url}/stolen"}
        with pytest.raises(Undelivered, match="302"):
            slack_at(listener).send(event())
        assert elsewhere.requests == []


def test_a_broken_alerter_is_logged_once_and_never_raises(caplog: pytest.LogCaptureFixture) -> None:
    alerter = from_url("pagerduty://KEY1234?endpoint=http://127.0.0.1:1/v2/enqueue")
    with caplog.at_level(logging.WARNING):
        alerter.notify(event())
        alerter.notify(event())
    (line,) = caplog.messages
    assert "the alerter pagerduty://" in line
    assert "cannot be reached" in line
    assert "KEY1234" not in line


def test_an_alerter_that_works_again_is_reported_when_it_breaks_again(
    listener: Listener, caplog: pytest.LogCaptureFixture
) -> None:
    alerter = from_url(f"{listener.url}/hook")
    for status in (404, 404, 200, 404):
        listener.statuses = [status]
        alerter.notify(event())
    assert len(caplog.messages) == 2


def test_a_secret_in_the_message_is_masked_on_the_wire(listener: Listener) -> None:
    alerters = [
        slack_at(listener),
        from_url(f"{listener.url}/hook"),
        from_url(f"pagerduty://KEY1234?endpoint={listener.url}/"),
    ]
    told = event(error_message="login canary-late-known refused", hint="canary-late-known")
    redact.remember_secret("canary-late-known")
    for alerter in alerters:
        alerter.notify(told)
    assert len(listener.requests) == 3
    assert "canary-late-known" not in "".join(request.text for request in listener.requests)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "empty"),
        ("slak://hooks.slack.com/x", "slack://"),
        ("nonsense", "scheme"),
        ("slack://", "webhook"),
        ("slack://hooks.slack.com/services/x?chanel=1", "chanel"),
        ("pagerduty://", "routing key"),
        ("pagerduty://KEY?severity=bad", "critical"),
        ("pagerduty://KEY?servce=x", "service"),
        ("https://", "http"),
        ("email://mail.example.com", "a recipient"),
        ("email://?to=a@b.c", "mail server"),
        ("email://mail.example.com?to=a@b.c&startls=0", "starttls"),
        ("slack://hooks.slack.com/${NOT_SET}", "NOT_SET"),
    ],
)
def test_a_wrong_address_is_an_error_in_words(url: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        from_url(url)
    assert said in str(caught.value)


def test_no_alerter_shows_its_key() -> None:
    shown = [
        repr(from_url(f"slack://hooks.slack.com{PATH}")),
        repr(from_url("pagerduty://R0uTingKey42")),
        repr(from_url("email://ana:geheim99@mail:25?to=a@b.c")),
        repr(from_url("https://ana:geheim99@host/path?token=abcdef99")),
    ]
    assert not any(secret in "".join(shown) for secret in ("xoxKEY", "R0uTing", "geheim99", "abcdef99"))
