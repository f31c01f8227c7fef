"""`flow status`: how each pipeline is doing."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import click

from ematix_flow.cli import module as modules
from ematix_flow.cli.flags import module_option, run_log_options
from ematix_flow.cli.history import RunLogChoice
from ematix_flow.cli.lazy import FlowCommand
from ematix_flow.cli.moments import local, next_due, retry_at
from ematix_flow.cli.output import Output
from ematix_flow.cli.vital import shown_status
from ematix_flow.declare import registry
from ematix_flow.declare.pipeline import PipelineSpec
from ematix_flow.foundation.clock import now
from ematix_flow.foundation.errors import ConnectionFailed
from ematix_flow.observe.alerts.text import span
from ematix_flow.runlog.memory import InMemoryRunLog
from ematix_flow.runlog.protocol import RunLog
from ematix_flow.runlog.records import AttemptState, LastRun, RunRecord, from_text, to_text

_HEADER = ("NAME", "SCHEDULE", "NEXT DUE", "LAST RUN", "OUTCOME", "RETRY", "LAG", "FRESHNESS", "DEPENDS ON")


@click.command("status", cls=FlowCommand)
@module_option
@run_log_options
@click.pass_obj
def command(output: Output, module: str | None, run_log_choice: RunLogChoice) -> None:
    """Each pipeline's last run, next due time and attempts, and how old its last success is (LAG)."""
    loaded = modules.load(module)
    snapshot = _snapshot(_opened(run_log_choice, output))
    if output.json:
        output.document(snapshot)
    elif not snapshot:
        output.talk(f"{loaded.name} declares no pipelines; decorate a function with @ematix.pipeline(…)")
    else:
        output.table([_row(entry) for entry in snapshot], header=_HEADER)


def _opened(choice: RunLogChoice, output: Output) -> RunLog:
    try:
        return choice.for_reading()
    except ConnectionFailed as error:
        output.warn(f"{error.what}; continuing without history")
        return InMemoryRunLog()


def _snapshot(run_log: RunLog) -> list[dict[str, Any]]:
    from ematix_flow.orchestrate.freshness import evaluate_freshness, last_success_in, registered_slas

    runs, attempts, newest = run_log.last_runs(), run_log.attempt_states(), run_log.latest_runs()
    paused, succeeded, slas = run_log.paused(), last_success_in(run_log), registered_slas()
    found = []
    for name, declared in sorted(registry.pipelines().items()):
        entry = _entry(declared.spec, runs.get(name), attempts.get(name), newest.get(name))
        entry["paused_by"] = (paused[name].by or "somebody") if name in paused else None
        success, sla = succeeded(name), slas.get(name)
        entry["lag_seconds"] = max(0, round((now() - success).total_seconds())) if success is not None else None
        state = evaluate_freshness(pipeline=name, last_success=success, sla=sla.sla_seconds) if sla else None
        entry["freshness_sla_seconds"] = sla.sla_seconds if sla else None
        entry["freshness"] = state.state if state else None
        found.append(entry)
    run_log.close()
    return found


def _entry(
    spec: PipelineSpec, last: LastRun | None, attempts: AttemptState | None, newest: RunRecord | None
) -> dict[str, Any]:
    due = next_due(spec.schedule, spec.timezone) if spec.schedule else None
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
    }


def _retry_at(spec: PipelineSpec, attempts: AttemptState | None) -> Any:
    if attempts is None or attempts.gave_up or attempts.attempt_count >= spec.retry.max_attempts:
        return None
    return retry_at(attempts.last_attempt_at, spec.retry.wait_after(attempts.attempt_count, of=spec.name))


def _row(entry: dict[str, Any]) -> tuple[str, ...]:
    schedule = entry["schedule"] or "(unscheduled)"
    due = _moment(entry["next_due_at"]) if entry["next_due_at"] else ("-" if not entry["schedule"] else "unreadable")
    last = _moment(entry["last_run_at"]) if entry["last_run_at"] else "never"
    depends = ", ".join(entry["depends_on"]) or "-"
    lag = "-" if entry["lag_seconds"] is None else span(timedelta(seconds=entry["lag_seconds"])) or "0 s"
    fresh = entry["freshness"] or "-"
    return entry["name"], schedule, due, last, _outcome(entry), _retry(entry), lag, fresh, depends


def _outcome(entry: dict[str, Any]) -> str:
    if entry["paused_by"] and entry["last_status"] != "running":
        return f"paused by {entry['paused_by']}"
    if entry["last_status"] in ("running", "died"):
        return str(entry["last_status"])
    return {True: "ok", False: "fail", None: "-"}[entry["last_success"]]


def _retry(entry: dict[str, Any]) -> str:
    if entry["max_attempts"] <= 1:
        return "no retry"
    tried = f"{entry['attempt_count']}/{entry['max_attempts']}"
    if entry["gave_up"]:
        return f"{tried} gave up"
    return f"{tried} next>{_moment(entry['next_retry_at'])}" if entry["next_retry_at"] else tried


def _moment(text: str) -> str:
    return local(from_text(text))
