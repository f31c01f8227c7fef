"""Freshness of pipelines: the time since their last success against their `freshness_sla`, and the alerts about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from ematix_flow.alerters.dispatch import Alerts
from ematix_flow.alerters.event import SLA_BREACHED, Alerter
from ematix_flow.alerters.outages import Outage, Outages
from ematix_flow.alerters.sources import freshness_recovered_alert, lateness_alert
from ematix_flow.declare import registry
from ematix_flow.declare.quality.checks import parse_duration
from ematix_flow.foundation.clock import now as clock_now
from ematix_flow.foundation.errors import DeclarationError, FlowError
from ematix_flow.run_log.protocol import RunLog, RunLogReader
from ematix_flow.run_log.records import in_utc, to_text
from ematix_flow.run_log.schedule import Slot
from ematix_flow.run_log.worker import this_worker

HEALTHY, WARNING, BREACHED = "healthy", "warning", "breached"
WARNING_FROM = 0.8
LATE, TIMELY = "late", "timely"
"""Slot prefixes in the run log, through which only one process sends the alert of an outage or of its end."""

Duration = str | int | float | timedelta
LastSuccess = Callable[[str], datetime | None]


@dataclass(frozen=True)
class SlaSpec:
    """The maximum age of the last success of a pipeline."""

    pipeline: str
    sla_seconds: int


@dataclass(frozen=True)
class FreshnessState:
    """The age of the last success: warning from 80 % of the SLA, breached beyond the SLA or without a success."""

    pipeline: str
    sla_seconds: int
    lag_seconds: int | None
    state: str
    last_success: datetime | None = None
    evaluated_at: datetime | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return all fields, ready for JSON."""
        moments = {"last_success": self.last_success, "evaluated_at": self.evaluated_at}
        return {**asdict(self), **{name: to_text(at) if at else None for name, at in moments.items()}}


def register_freshness_sla(pipeline: str, sla: Duration | None) -> None:
    """Set the maximum age of a pipeline's last success, overriding its declaration; None removes the limit."""
    allowed = None if sla is None else parse_duration(sla)
    if allowed is not None and not allowed:
        raise DeclarationError("an SLA of no time would always be breached", hint='for example "24h"')
    registry.register_freshness(pipeline, allowed)


def registered_slas() -> dict[str, SlaSpec]:
    """Return every pipeline with an SLA, by name: its `freshness_sla`, or the registered one."""
    return {
        name: SlaSpec(name, max(1, round(allowed.total_seconds())))
        for name, allowed in sorted(registry.freshness().items())
    }


def evaluate_freshness(
    *, pipeline: str, last_success: datetime | None, sla: Duration, now: datetime | None = None
) -> FreshnessState:
    """Return the state of one pipeline at a moment; a pipeline that never succeeded is breached.

    >>> noon = datetime(2026, 3, 1, 12)
    >>> evaluate_freshness(pipeline="orders", last_success=datetime(2026, 3, 1, 11), sla="1h", now=noon).state
    'warning'
    """
    at, allowed = in_utc(now or clock_now()), parse_duration(sla)
    seconds = round(allowed.total_seconds())
    if last_success is None:
        return FreshnessState(pipeline, seconds, None, BREACHED, None, at)
    lag = max(timedelta(0), at - in_utc(last_success))  # a success time ahead of this clock does not count as late
    state = BREACHED if lag > allowed else WARNING if lag >= allowed * WARNING_FROM else HEALTHY
    return FreshnessState(pipeline, seconds, int(lag.total_seconds()), state, in_utc(last_success), at)


def evaluate_all(last_success_fn: LastSuccess, now: datetime | None = None) -> list[FreshnessState]:
    """Return the state of every pipeline that has an SLA, ordered by name."""
    at = now or clock_now()
    return [
        evaluate_freshness(pipeline=name, last_success=last_success_fn(name), sla=spec.sla_seconds, now=at)
        for name, spec in registered_slas().items()
    ]


def evaluate_freshness_once(*, last_success_fn: LastSuccess, analytics_store: Callable[[FreshnessState], None] | None = None,
                            alerters: Sequence[Alerter] | None = None,
                            now: datetime | None = None) -> list[FreshnessState]:  # fmt: skip
    """Return the current states; pass each one to `analytics_store`, and send an alert for each breached one."""
    states = evaluate_all(last_success_fn, now)
    alerts = Alerts(alerters or ())
    for state in states:
        if analytics_store is not None:
            analytics_store(state)
        if state.state == BREACHED:
            alerts.notify(_late(state))
    return states


class FreshnessEvaluator:
    """An evaluator that calls back only when a pipeline becomes late or fresh again."""

    def __init__(self, *, last_success_fn: LastSuccess, on_breach: Callable[[FreshnessState], None] | None = None,
                 on_recover: Callable[[FreshnessState], None] | None = None,
                 store_writer: Callable[[FreshnessState], None] | None = None) -> None:  # fmt: skip
        self._last_success = last_success_fn
        self._on_breach = on_breach
        self._on_recover = on_recover
        self._store = store_writer
        self._before: dict[str, str] = {}

    def prime_state(self, mapping: Mapping[str, str]) -> None:
        """Set the previous states by pipeline, so that they cause no callback."""
        self._before.update(mapping)

    def evaluate_all(self, now: datetime | None = None) -> list[FreshnessState]:
        """Return the current states, and call back for each that has changed."""
        states = evaluate_all(self._last_success, now)
        for state in states:
            was_late = self._before.get(state.pipeline) == BREACHED
            self._before[state.pipeline] = state.state
            if self._store is not None:
                self._store(state)
            is_late = state.state == BREACHED
            report = self._on_breach if is_late else self._on_recover
            if is_late != was_late and report is not None:
                report(state)
        return states


def last_success_in(run_log: RunLogReader) -> LastSuccess:
    """Return a function that looks up the last success of a pipeline in the run log."""
    last = run_log.last_runs()

    def find(name: str) -> datetime | None:
        run = last.get(name)
        if run is None or run.success:
            return run.at if run is not None else None
        records, _ = run_log.list_runs(pipeline=name, status="succeeded", limit=1)
        return (records[0].finished_at or records[0].started_at) if records else None

    return find


def ended_outages(states: Sequence[FreshnessState], run_log: RunLog, known: Outages) -> dict[str, Outage]:
    """Return the known outages, plus those that were alerted for pipelines which are no longer late."""
    outages = dict(known)
    opened = _open_outages(run_log)
    for state in states:
        opened_slot = opened.get(state.pipeline)
        if opened_slot is None or state.state == BREACHED:
            continue
        before = outages.get(state.pipeline)
        still = before.open if before is not None else ()
        since = min(before.since, opened_slot.fired_at) if before is not None else opened_slot.fired_at
        outages[state.pipeline] = Outage(since, (*still, SLA_BREACHED))
    return outages


def notify_lateness(states: Sequence[FreshnessState], run_log: RunLog, alerts: Alerts) -> None:
    """Send an alert for each pipeline that became late or fresh again, once across all processes."""
    opened = _open_outages(run_log)
    for state in states:
        name = state.pipeline
        if state.state == BREACHED:
            slot = f"{LATE}:{to_text(state.last_success) if state.last_success else 'never'}"
            if _claim_notification(run_log, name, slot):
                alerts.notify(_late(state))
        elif name in opened and _claim_notification(run_log, name, f"{TIMELY}:{opened[name].slot}"):
            alerts.notify(freshness_recovered_alert(name, now=state.evaluated_at or clock_now()))


def _open_outages(run_log: RunLog) -> dict[str, Slot]:
    """Return the outages that were alerted and whose end was not."""
    ended = {name: slot.slot for name, slot in run_log.last_slots(TIMELY).items()}
    late = run_log.last_slots(LATE)
    return {name: slot for name, slot in late.items() if ended.get(name) != f"{TIMELY}:{slot.slot}"}


def _claim_notification(run_log: RunLog, name: str, slot: str) -> bool:
    try:
        return run_log.take_slot(name, slot, this_worker())
    except FlowError:  # a duplicate alert is better than none
        return True


def _late(state: FreshnessState) -> Any:
    declared = registry.pipelines().get(state.pipeline)
    return lateness_alert(
        state.pipeline,
        now=state.evaluated_at or clock_now(),
        last_success=state.last_success,
        allowed=timedelta(seconds=state.sla_seconds),
        where=str(declared.spec.where or "") if declared is not None else "",
    )
