"""The status of each pipeline, as data and as table cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from ematix_flow.alerters.text import format_span
from ematix_flow.declare import registry
from ematix_flow.declare.pipeline import PipelineSpec
from ematix_flow.foundation.clock import now
from ematix_flow.run_log.protocol import RunLogReader
from ematix_flow.run_log.records import AttemptState, LastRun, RunRecord, from_text, to_text
from ematix_flow.run_log.worker import shown_status
from ematix_flow.scheduler.cron import BadSchedule, next_fire
from ematix_flow.scheduler.freshness import evaluate_freshness, last_success_in, registered_slas

HEADER = ("NAME", "SCHEDULE", "NEXT DUE", "LAST RUN", "OUTCOME", "RETRY", "LAG", "FRESHNESS", "DEPENDS ON")


def status_snapshot(run_log: RunLogReader) -> list[dict[str, Any]]:
    """Return every pipeline by name: its last run, next due time, next retry, lag and freshness, ready for JSON."""
    runs, attempts, newest = run_log.last_runs(), run_log.attempt_states(), run_log.latest_runs()
    paused, succeeded, slas = run_log.paused(), last_success_in(run_log), registered_slas()
    entries = []
    for name, declared in sorted(registry.pipelines().items()):
        entry = _entry(declared.spec, runs.get(name), attempts.get(name), newest.get(name))
        entry["paused_by"] = (paused[name].by or "unknown") if name in paused else None
        success, sla = succeeded(name), slas.get(name)
        entry["lag_seconds"] = max(0, round((now() - success).total_seconds())) if success is not None else None
        state = evaluate_freshness(pipeline=name, last_success=success, sla=sla.sla_seconds) if sla else None
        entry["freshness_sla_seconds"] = sla.sla_seconds if sla else None
        entry["freshness"] = state.state if state else None
        entries.append(entry)
    return entries


def _entry(
    spec: PipelineSpec, last: LastRun | None, attempts: AttemptState | None, newest: RunRecord | None
) -> dict[str, Any]:
    due = _next_due(spec) if spec.schedule else None
    again = _retry_at(spec, attempts)
    return {
        "name": spec.name,
        "schedule": spec.schedule,
        "timezone": spec.timezone,
        "next_due_at": to_text(due) if due else None,
        "last_run_at": to_text(last.at) if last else None,
        "last_success": last.success if last else None,
        "last_run_id": newest.run_id if newest else None,
        "last_status": shown_status(newest) if newest else None,
        "attempt_count": attempts.attempt_count if attempts else 0,
        "max_attempts": spec.retry.max_attempts,
        "gave_up": attempts.gave_up if attempts else False,
        "next_retry_at": to_text(again) if again else None,
        "depends_on": list(spec.depends_on),
        "last_run": {"at": to_text(last.at), "success": last.success} if last else None,
        "retry_policy": asdict(spec.retry),
        "attempt_state": {**asdict(attempts), "last_attempt_at": to_text(attempts.last_attempt_at)}
        if attempts
        else None,
    }


def _retry_at(spec: PipelineSpec, attempts: AttemptState | None) -> datetime | None:
    if attempts is None or attempts.gave_up or attempts.attempt_count >= spec.retry.max_attempts:
        return None
    return attempts.last_attempt_at + timedelta(seconds=spec.retry.wait_after(attempts.attempt_count, of=spec.name))


def _next_due(spec: PipelineSpec) -> datetime | None:
    """Return the next fire time; None for an invalid schedule."""
    try:
        return next_fire(str(spec.schedule), now(), zone=spec.timezone)
    except BadSchedule:
        return None


def status_rows(snapshot: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Return the cells of a table below `HEADER`."""
    return [_row(entry) for entry in snapshot]


def _row(entry: Mapping[str, Any]) -> tuple[str, ...]:
    schedule = entry["schedule"] or "(unscheduled)"
    due = _moment(entry["next_due_at"]) if entry["next_due_at"] else ("-" if not entry["schedule"] else "unreadable")
    last = _moment(entry["last_run_at"]) if entry["last_run_at"] else "never"
    depends = ", ".join(entry["depends_on"]) or "-"
    lag = "-" if entry["lag_seconds"] is None else format_span(timedelta(seconds=entry["lag_seconds"])) or "0 s"
    fresh = entry["freshness"] or "-"
    return entry["name"], schedule, due, last, _outcome(entry), _retry(entry), lag, fresh, depends


def _outcome(entry: Mapping[str, Any]) -> str:
    if entry["paused_by"] and entry["last_status"] != "running":
        return f"paused by {entry['paused_by']}"
    if entry["last_status"] in ("running", "died"):
        return str(entry["last_status"])
    return {True: "ok", False: "fail", None: "-"}[entry["last_success"]]


def _retry(entry: Mapping[str, Any]) -> str:
    if entry["max_attempts"] <= 1:
        return "no retry"
    tried = f"{entry['attempt_count']}/{entry['max_attempts']}"
    if entry["gave_up"]:
        return f"{tried} gave up"
    return f"{tried} next>{_moment(entry['next_retry_at'])}" if entry["next_retry_at"] else tried


def _moment(text: str) -> str:
    return from_text(text).astimezone().strftime("%Y-%m-%d %H:%M:%S")
