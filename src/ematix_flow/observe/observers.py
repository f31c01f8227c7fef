"""All observers of a run in one object; a failing observer does not fail the run."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from ematix_flow.alerters.dispatch import Alerts
from ematix_flow.alerters.event import FAILED, GAVE_UP, AlertEvent
from ematix_flow.alerters.sources import failure_alert, quality_alert, recovery_alert, refused_checks, was_notified
from ematix_flow.declare.pipeline import PipelineSpec
from ematix_flow.foundation.clock import now
from ematix_flow.foundation.errors import FlowError, LeaseHeld, RunCancelled, error_facts
from ematix_flow.foundation.isolation import WarnOnce
from ematix_flow.lineage.declared import SourceText, lineage_of
from ematix_flow.lineage.emitters import LineageEmitter
from ematix_flow.lineage.events import ABORT, COMPLETE, FAIL, NAMESPACE, START, run_event
from ematix_flow.metrics.run_metrics import record_run
from ematix_flow.metrics.sinks import MetricsSink, NullSink
from ematix_flow.metrics.step_times import ProgressSignal, StepTimer
from ematix_flow.observe import tracing
from ematix_flow.run_log.records import RunRecord, run_record

# The run was cancelled, or another process runs it.
_NOBODYS_FAULT = (KeyboardInterrupt, SystemExit, GeneratorExit, RunCancelled, LeaseHeld)


@dataclass
class Observers:
    """Alerters, a metrics sink, a tracer and a lineage emitter; each is optional."""

    alerts: Alerts = field(default_factory=Alerts)
    metrics: MetricsSink = field(default_factory=NullSink)
    tracer: Any | None = None
    lineage: LineageEmitter | None = None
    namespace: str = NAMESPACE
    run_log_option: str = ""
    """The option that `flow runs show` needs for a run log other than the default: ` --run-log …`."""
    complaints: WarnOnce = field(default_factory=WarnOnce)

    @contextmanager
    def watching(self, spec: PipelineSpec, *, attempt: int = 1, run_id: str | None = None,
                 scheduled_for: datetime | None = None) -> Iterator[ObservedRun]:  # fmt: skip
        """Observe one run: pass it `watch.listener`, call `watch.succeeded(…)`; an error is recorded and re-raised."""
        watch = ObservedRun(self, spec, run_id or str(uuid.uuid4()), attempt, scheduled_for)
        watch.began()
        with tracing.pipeline_run_span(spec.name, attempt, self.tracer) as span:
            try:
                yield watch
            except BaseException as error:
                watch.failed(error)
                raise
            finally:
                watch.ended(span)

    def close(self) -> None:
        """Send the remaining metrics and spans."""
        with self.complaints.guard("the metrics sink"):
            self.metrics.close()
        with self.complaints.guard("the tracer"):
            tracing.close_tracer(self.tracer)


class ObservedRun:
    """One observed run."""

    def __init__(self, observers: Observers, spec: PipelineSpec, run_id: str, attempt: int,
                 scheduled_for: datetime | None) -> None:  # fmt: skip
        self.spec = spec
        self.run_id = run_id
        """The run's id in traces and lineage; pass it to the run, so that its record has the same."""
        self.attempt = attempt
        self.source: SourceText | None = None
        """The source's SQL, as soon as it is known."""
        self.gave_up = False
        """Whether this failure is the last attempt."""
        self.spark_jobs: list[int] = []
        self.spark_stages: list[int] = []
        self._observers = observers
        self._scheduled_for = scheduled_for
        self._started_at = now()
        self._clock = StepTimer()
        self._record: RunRecord | None = None
        self._interrupted = False

    @property
    def record(self) -> RunRecord | None:
        """Return the record of the run; None before it has ended."""
        return self._record

    def listener(self, event: ProgressSignal) -> None:
        """Receive a progress signal of the run."""
        self._clock(event)

    def began(self) -> None:
        """Report that the run begins."""
        self._emit_lineage(START, self._started_at)

    def succeeded(self, result: Mapping[str, Any]) -> None:
        """Set the run's outcome as plain data, as returned by `Result.to_dict()`."""
        self._record = self._make_record("succeeded", result, None)

    def failed(self, error: BaseException) -> None:
        """Set the exception that the run raised."""
        self._interrupted = isinstance(error, _NOBODYS_FAULT)
        self.gave_up = self.gave_up or self.spec.retry.gives_up(self.attempt, error)
        facts = error.facts if isinstance(error, FlowError) else {}
        result = facts.get("result")
        partly = result.to_dict() if result is not None and hasattr(result, "to_dict") else {}
        self._record = self._make_record("failed", partly, error)

    def ended(self, span: Any | None) -> None:
        """Report the outcome to all observers; a failing observer does not fail the run."""
        steps = self._clock.finish()
        record = self._record or self._make_record("succeeded", {}, None)
        self._record = record
        watchers = self._observers
        with watchers.complaints.guard("the metrics sink"):
            record_run(watchers.metrics, record, steps=steps)
        if span is not None:
            with watchers.complaints.guard("the tracer"):
                tracing.describe_run(span, record, spark_jobs=self.spark_jobs, spark_stages=self.spark_stages)
                tracing.add_steps(watchers.tracer, span, self.spec.name, steps)
        ending = COMPLETE if record.status == "succeeded" else ABORT if self._interrupted else FAIL
        self._emit_lineage(ending, record.finished_at or now())
        if not self._interrupted:  # the user who stopped the run needs no alert
            with watchers.complaints.guard("the alerters"):
                for event in self._events(record):
                    watchers.alerts.notify(event)

    def _events(self, record: RunRecord) -> Iterator[AlertEvent]:
        """Yield the run's alerts; failed checks come first, because a recovery with bad data is not one."""
        option = self._observers.run_log_option
        command = f"flow runs show {record.run_id[:8]}{option}" if option else ""
        if record.status != "succeeded":
            attempts = self.spec.retry.max_attempts
            failed = failure_alert(record, max_attempts=attempts, gave_up=self.gave_up, command=command)
            if failed.kind == GAVE_UP:  # the last attempt is a failure as well
                yield replace(failed, kind=FAILED)
            yield failed
            return
        refused = refused_checks(record)
        if was_notified(record):
            yield quality_alert(
                record, checks="\n".join(refused or ()), where=str(self.spec.where or ""), command=command
            )
        yield recovery_alert(record, quality_passed=refused == [], command=command)

    def _make_record(self, status: str, result: Mapping[str, Any], error: BaseException | None) -> RunRecord:
        facts = error.facts if isinstance(error, FlowError) else {}
        extras = {key: value for key, value in result.items() if key != "pipeline"}
        if error is not None:
            kind, message = error_facts(error)
            plain = {"error": kind, "message": message, "where": str(self.spec.where or "")}
            extras["error"] = error.to_dict() if isinstance(error, FlowError) else plain
        run_id = str(result.get("run_id") or facts.get("run_id") or self.run_id)
        return run_record(run_id, self.spec.name, status, self._started_at, error=error, attempt=self.attempt,
                          extras=extras)  # fmt: skip

    def _emit_lineage(self, kind: str, at: datetime) -> None:
        emitter = self._observers.lineage
        if emitter is None:
            return
        with self._observers.complaints.guard(f"lineage to {emitter.address}"):
            emitter.emit(
                run_event(
                    kind,
                    self.spec,
                    lineage_of(self.spec, source=self.source),
                    run_id=self.run_id,
                    at=at,
                    record=self._record,
                    namespace=self._observers.namespace,
                    scheduled_for=self._scheduled_for,
                )
            )
