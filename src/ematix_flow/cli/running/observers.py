"""Builds the observers of a command: alerters, metrics, traces and lineage."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ematix_flow.cli.render.output import Output
from ematix_flow.declare.pipeline import PipelineSpec

if TYPE_CHECKING:
    from ematix_flow.engine.batch.result import Listener, ProgressEvent, Result
    from ematix_flow.observe.observers import ObservedRun, Observers
    from ematix_flow.run_log.protocol import RunLog
    from ematix_flow.run_log.records import RunRecord

_VARIABLES = (
    "EMATIX_FLOW_ALERTERS", "EMATIX_FLOW_METRICS", "EMATIX_FLOW_METRICS_URL", "EMATIX_FLOW_TRACES", "EMATIX_FLOW_LINEAGE",
)  # fmt: skip
_TABLES = ("alerters", "metrics", "traces", "lineage")
_OUTCOMES = {
    "dispatched": "dispatched",
    "dispatch_failed": "dispatch_failed",
    "lost": "lease_expired",
    "gave_up": "lease_expired",
    "tick_error": "tick_error",
    "skipped": "skipped",
}


@dataclass(frozen=True)
class ObserverFlags:
    """The observer options of a command."""

    alerters: tuple[str, ...] = ()
    metrics: str | None = None
    traces: str | None = None
    lineage: str | None = None


@dataclass(frozen=True)
class CommandRun:
    """One run of a command: its listener, its id if one is given, and its observation if there is one."""

    listener: Listener
    run_id: str | None
    observed: ObservedRun | None = None

    def ended(self, result: Result) -> Result:
        """Report a successful end to the observers, and return the result."""
        if self.observed is not None:
            self.observed.succeeded(result.to_dict())
        return result


class CommandObservers:
    """The observers of the runs of one command; none unless configured."""

    def __init__(self, flags: ObserverFlags, output: Output, run_log: RunLog | None, run_log_option: str) -> None:
        self._observers = _observers(flags, output, run_log, run_log_option) if _is_observing_requested(flags) else None

    @contextmanager
    def observing(
        self, spec: PipelineSpec, listener: Listener, requested: RunRecord | None = None
    ) -> Iterator[CommandRun]:
        """Observe the block's run, which uses the listener and the run id of the yielded object and reports its end."""
        run_id, attempt = (requested.run_id, requested.attempt) if requested else (None, 1)
        if self._observers is None:
            yield CommandRun(listener, run_id)
            return
        with self._observers.watching(spec, attempt=attempt, run_id=run_id) as watch:

            def both(event: ProgressEvent) -> None:
                watch.listener(event)
                listener(event)

            yield CommandRun(both, watch.run_id, watch)

    def on_scheduler_event(self, kind: str, name: str, record: RunRecord | None = None) -> None:
        """Count a scheduler event in the metrics; alert about a lost run, which cannot report its own failure."""
        if self._observers is None:
            return
        from ematix_flow.alerters.sources import failure_alert
        from ematix_flow.metrics.run_metrics import record_run

        watchers = self._observers
        with watchers.complaints.guard("the metrics sink"):
            if kind in _OUTCOMES:
                watchers.metrics.inc_runs(name, _OUTCOMES[kind])
            if kind == "ended" and record is not None:
                record_run(watchers.metrics, record)
        if kind in ("lost", "gave_up") and record is not None:
            with watchers.complaints.guard("the alerters"):
                watchers.alerts.notify(failure_alert(record, max_attempts=record.attempt, gave_up=kind == "gave_up"))

    def check_freshness(self, run_log: RunLog) -> None:
        """Alert about the pipelines that have become late, and about those that are fresh again."""
        if self._observers is None or not self._observers.alerts.alerters:
            return
        from ematix_flow.scheduler import freshness

        states = freshness.evaluate_all(freshness.last_success_in(run_log))
        with self._observers.complaints.guard("the freshness alerts"):
            freshness.notify_lateness(states, run_log, self._observers.alerts)

    def close(self) -> None:
        """Send pending events and close the observers."""
        if self._observers is not None:
            self._observers.close()


def _is_observing_requested(flags: ObserverFlags) -> bool:
    """Return whether an option, a variable, a configuration file or the user's module configures observers."""
    if flags != ObserverFlags() or any(os.environ.get(name) for name in _VARIABLES):
        return True
    if _is_registered():
        return True
    from ematix_flow.config import files

    return any(table in file.data for file in files.configuration_files() for table in _TABLES)


def _is_registered() -> bool:
    """Return whether the user's module has registered an alerter or a tracer, without importing either module here."""
    active = sys.modules.get("ematix_flow.alerters.dispatch")
    tracing = sys.modules.get("ematix_flow.observe.tracing")
    return bool(active and active.active_alerters()) or bool(tracing and tracing.get_global_tracer() is not None)


def _observers(flags: ObserverFlags, output: Output, run_log: RunLog | None, run_log_option: str) -> Observers:
    from ematix_flow.alerters.outages import outages_in_run_log
    from ematix_flow.observe.settings import ObserverOptions, requested_observers

    options = ObserverOptions(flags.alerters, flags.metrics, flags.traces, flags.lineage)
    built = requested_observers(options, warn=output.warn, run_log_option=run_log_option)
    if run_log is not None and built.alerts.alerters:  # without alerters, earlier outages have no effect
        built.alerts.restore_outages(outages_in_run_log(run_log))
    return built
