"""Alert events from run records, freshness checks and quality checks."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from ematix_flow.alerters.event import (
    BRAKE,
    FAILED,
    GAVE_UP,
    OF_RUNS,
    QUALITY_FAILED,
    RECOVERED,
    SLA_BREACHED,
    AlertEvent,
)
from ematix_flow.alerters.text import format_span
from ematix_flow.run_log.records import RunRecord


def failure_alert(record: RunRecord, *, max_attempts: int = 0, gave_up: bool = False, command: str = "") -> AlertEvent:
    """Return the alert of a failed run; a brake and failed quality checks have alerts of their own."""
    error = record.extras.get("error")
    known: Mapping[str, Any] = error if isinstance(error, Mapping) else {}
    kind = str(known.get("error") or "")
    gave_up = gave_up or bool(record.extras.get("gave_up"))
    return AlertEvent(
        kind=_kind(kind, gave_up),
        pipeline=record.pipeline,
        timestamp=record.finished_at or record.started_at,
        error_message=record.error_summary or str(known.get("message") or ""),
        error_type=kind,
        attempt_count=record.attempt,
        max_attempts=max_attempts,
        gave_up=gave_up,
        run_id=record.run_id,
        where=str(known.get("where") or ""),
        step=record.failed_step or "",
        hint=str(known.get("hint") or ""),
        command=command,
    )


def recovery_alert(record: RunRecord, *, quality_passed: bool = True, command: str = "") -> AlertEvent:
    """Return the alert of a run that succeeded; it is sent only after a problem."""
    return AlertEvent(
        kind=RECOVERED,
        pipeline=record.pipeline,
        timestamp=record.finished_at or record.started_at,
        attempt_count=record.attempt,
        run_id=record.run_id,
        command=command,
        recovers=(*OF_RUNS, QUALITY_FAILED) if quality_passed else OF_RUNS,
    )


def lateness_alert(pipeline: str, *, now: datetime, last_success: datetime | None, allowed: timedelta,
             where: str = "") -> AlertEvent:  # fmt: skip
    """Return the alert of data that is older than its freshness_sla allows."""
    if last_success is None:
        message = f"it has never succeeded, and its data may be {format_span(allowed)} old"
    else:
        message = f"its data is {format_span(now - last_success)} old and may be {format_span(allowed)}"
    return AlertEvent(
        kind=SLA_BREACHED,
        pipeline=pipeline,
        timestamp=now,
        error_message=message,
        where=where,
        since=None if last_success is None else last_success + allowed,
        command=f"flow runs list --pipeline {pipeline}",
    )


def freshness_recovered_alert(pipeline: str, *, now: datetime) -> AlertEvent:
    """Return the alert of data that is fresh again."""
    return AlertEvent(kind=RECOVERED, pipeline=pipeline, timestamp=now, recovers=(SLA_BREACHED,))


def quality_alert(record: RunRecord, *, checks: str, where: str = "", command: str = "") -> AlertEvent:
    """Return the alert of a run that loaded data which does not pass its checks."""
    return AlertEvent(
        kind=QUALITY_FAILED,
        pipeline=record.pipeline,
        timestamp=record.finished_at or record.started_at,
        error_message=checks,
        attempt_count=record.attempt,
        run_id=record.run_id,
        where=where,
        command=command,
    )


def refused_checks(record: RunRecord) -> list[str] | None:
    """Return the failed checks of a load that was published all the same; None if the checks were skipped."""
    outcomes = _outcomes(record)
    if any(outcome.get("verdict") == "skipped" for outcome in outcomes):
        return None
    return [
        f"{item.get('name')}: {item.get('message')}"
        for outcome in outcomes
        for item in outcome.get("assertions") or ()
        if isinstance(item, Mapping) and item.get("verdict") in ("fail", "error")
    ]


def was_notified(record: RunRecord) -> bool:
    """Return whether an alert was sent about failed checks of a load that was published all the same."""
    quality = record.extras.get("quality")
    wants = isinstance(quality, Mapping) and bool(quality.get("alert"))
    return wants and record.status == "succeeded" and bool(refused_checks(record))


def _outcomes(record: RunRecord) -> list[Mapping[str, Any]]:
    """Return the check outcomes of all targets."""
    quality = record.extras.get("quality")
    if not isinstance(quality, Mapping):
        return []
    several = quality.get("targets")
    outcomes = several.values() if isinstance(several, Mapping) else [quality]
    return [outcome for outcome in outcomes if isinstance(outcome, Mapping)]


def _kind(error: str, gave_up: bool) -> str:
    if error == "Brake":
        return BRAKE
    if error.startswith("Quality"):
        return QUALITY_FAILED
    return GAVE_UP if gave_up else FAILED
