"""Alerts as text: one line for a subject, a few lines for the rest."""

from __future__ import annotations

from datetime import datetime, timedelta

from ematix_flow.alerters.event import (
    BRAKE,
    FAILED,
    GAVE_UP,
    QUALITY_FAILED,
    RECOVERED,
    SLA_BREACHED,
    AlertEvent,
)

_LONGEST_MESSAGE = 1500


def alert_title(event: AlertEvent) -> str:
    """Return the event in one line.

    >>> from datetime import datetime
    >>> alert_title(AlertEvent("failed", "orders", datetime(2026, 1, 31), attempt_count=2, max_attempts=3))
    'orders failed (attempt 2 of 3)'
    """
    tried = event.attempt_count
    words = {
        FAILED: f"{event.pipeline} failed" + (f" (attempt {tried} of {event.max_attempts})" if _has_attempts(event) else ""),
        GAVE_UP: f"{event.pipeline} gave up" + (f" after {tried} {'attempts' if tried > 1 else 'attempt'}" if tried else ""),
        RECOVERED: f"{event.pipeline} recovered" + (f" after {_lasted(event)}" if event.since else ""),
        QUALITY_FAILED: f"{event.pipeline} " + ("was not loaded: its checks refuse the data" if event.error_type else "loaded data that its checks refuse"),
        SLA_BREACHED: f"{event.pipeline} is late",
        BRAKE: f"{event.pipeline} was stopped by its brake",
    }  # fmt: skip
    return words[event.kind]


def alert_facts(event: AlertEvent) -> list[tuple[str, str]]:
    """Return the details by name: error, location, start, attempts, next step, and the command that shows more."""
    pairs = [
        ("error", _error(event)),
        ("where", event.where),
        ("while", event.step),
        ("since", _since(event)),
        ("attempts", f"{event.attempt_count} of {event.max_attempts}" if _has_attempts(event) else ""),
        ("next", event.hint),
        ("more", event.more),
    ]
    return [(name, text) for name, text in pairs if text]


def alert_lines(event: AlertEvent) -> list[str]:
    """Return title and details, one per line, for plain text."""
    text_lines = [alert_title(event)]
    for name, text in alert_facts(event):
        first, *rest = text.splitlines()
        text_lines.append(f"  {name:<9}{first}")
        text_lines += [f"  {'':<9}{line}" for line in rest]
    return text_lines


def format_moment(at: datetime) -> str:
    """Return an instant as readable text in UTC."""
    return at.strftime("%Y-%m-%d %H:%M:%S UTC")


def _error(event: AlertEvent) -> str:
    message = event.error_message.strip()
    if len(message) > _LONGEST_MESSAGE:
        message = message[:_LONGEST_MESSAGE].rstrip() + " …"
    return f"{event.error_type}: {message}" if event.error_type and message else message or event.error_type


def _since(event: AlertEvent) -> str:
    if event.since is None or event.kind == RECOVERED:
        return format_moment(event.timestamp)
    lasted = _lasted(event)
    return format_moment(event.since) + (f" ({lasted})" if lasted else "")


def _lasted(event: AlertEvent) -> str:
    return format_span(event.timestamp - event.since) if event.since else ""


def format_span(length: timedelta) -> str:
    """Return a duration in its two largest units; empty below a second.

    >>> format_span(timedelta(seconds=75)), format_span(timedelta(days=2, hours=3, minutes=4))
    ('1 min 15 s', '2 d 3 h')
    """
    left = max(0, round(length.total_seconds()))
    parts = []
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        number, left = divmod(left, size)
        if number:
            parts.append(f"{number} {unit}")
    return " ".join(parts[:2])


def _has_attempts(event: AlertEvent) -> bool:
    return event.attempt_count > 0 and event.max_attempts > 1
