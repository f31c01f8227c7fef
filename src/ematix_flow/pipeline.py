"""Functions on declared pipelines by name, and loads without a decorator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from ematix_flow.declare import registry
from ematix_flow.declare.pipeline import PipelineOptions, pipeline_from, plain_pipeline
from ematix_flow.declare.pipeline_data import Pipeline, Source, Target
from ematix_flow.declare.retry import RetryPolicy
from ematix_flow.declare.streams import registry as streams
from ematix_flow.declare.table import ManagedTable
from ematix_flow.declare.windows import Chunk, moment
from ematix_flow.declare.workflow import AllOf, AnyOf, TriggerOp, Workflow, register_workflow, workflows
from ematix_flow.decorators import Pipeline as _Declared
from ematix_flow.engine import batch
from ematix_flow.engine import preview as _preview
from ematix_flow.engine.handle import Connection
from ematix_flow.engine.post import ParentContext, own_exceptions
from ematix_flow.engine.preview import Preview, ValidateResult
from ematix_flow.engine.result import Result
from ematix_flow.foundation.clock import now as clock_now
from ematix_flow.foundation.errors import RunFailed, UnknownName
from ematix_flow.foundation.location import caller
from ematix_flow.foundation.signatures import taking
from ematix_flow.orchestrate import backfill as _backfill
from ematix_flow.orchestrate import cron, messages, status
from ematix_flow.orchestrate.backfill import BackfillResult
from ematix_flow.orchestrate.backfill_plan import Order
from ematix_flow.orchestrate.firing import FailedEvent, FiredEvent, RunDueResult, SkippedEvent
from ematix_flow.orchestrate.gaps import Gaps, gaps_of
from ematix_flow.runlog import default_run_log
from ematix_flow.runlog.memory import InMemoryRunLog
from ematix_flow.runlog.protocol import RunLog as _RunLog
from ematix_flow.runlog.records import AttemptState, in_utc
from ematix_flow.runlog.sqlite import SqliteRunLog as RunLog

__all__ = [
    "AllOf", "AnyOf", "AttemptState", "FailedEvent", "FiredEvent", "ParentContext", "Pipeline", "RegistryEntry", "RetryPolicy", "RunDueResult", "RunLog", "ScheduledPipeline", "SkippedEvent", "Source", "Target", "TriggerOp",
    "ValidateResult", "Workflow", "backfill", "depends_on_of", "dry_run", "forecast_next_run", "gaps", "get_pipeline", "is_due", "list_entries", "list_pipelines", "list_transforms",
    "matched_fire_time", "order_for_run_due", "preview", "register", "register_workflow", "render_status_table", "retry_policy_of",
    "run_due_with_dag", "run_due_with_dag_detailed", "run_pipeline", "run_transform", "send_message", "status_snapshot", "sync",
    "upstream_freshness_secs_of", "validate", "workflow_dag_edges",
]  # fmt: skip


@dataclass(frozen=True)
class ScheduledPipeline:
    """A declared pipeline: call `fn` to run it."""

    name: str
    schedule: str | None
    fn: Callable[[], Any]
    timezone: str | None = None


@dataclass(frozen=True)
class RegistryEntry:
    """A declared name of a module: a pipeline or a transform."""

    name: str
    kind: str
    schedule: str | None


@taking(PipelineOptions)
def sync(
    *,
    target: type[ManagedTable],
    source: Any,
    target_connection: Any = None,
    mode: str = "append",
    pipeline_name: str | None = None,
    dry_run: bool = False,
    accept_deletes: int | None = None,
    **options: Any,
) -> Result:
    """Load a source into a table now, without declaring a pipeline.

    `source` is SQL on the target's connection, a `Source` or a Spark DataFrame; `options` are further keywords of
    `@ematix.pipeline`. With `dry_run` everything is staged, checked and counted, then rolled back; `accept_deletes`
    is the number of rows that the load may delete in spite of the delete limit.
    """
    where = caller()
    named = pipeline_name or f"{target.__schema__}.{target.__tablename__}"
    declared = target_connection.declared if isinstance(target_connection, Connection) else target_connection
    parsed = PipelineOptions.parse(
        {"target": target, "target_connection": declared, "mode": mode, "name": named, **options}, where
    )
    spec = pipeline_from(lambda: source, parsed, where)
    if dry_run:
        return batch.rehearse(spec, accept_deletes=accept_deletes)
    with own_exceptions():
        return batch.run(spec, run_log=default_run_log(), accept_deletes=accept_deletes)


def register(*, name: str, schedule: str | None, depends_on: Sequence[str] | None = None,
             upstream_freshness_secs: int | None = None, retry: Mapping[str, Any] | None = None,
             timezone: str | None = None) -> Callable[[Callable[[], Any]], Callable[[], Any]]:  # fmt: skip
    """Function decorator: register a function that does the whole work itself as a pipeline."""
    where = caller()

    def decorate(function: Callable[[], Any]) -> Callable[[], Any]:
        spec = plain_pipeline(
            function,
            name=name,
            schedule=schedule,
            depends_on=depends_on,
            upstream_freshness_secs=upstream_freshness_secs,
            retry=retry,
            timezone=timezone,
            where=where,
        )
        registry.register_pipeline(_Declared(spec))
        return function

    return decorate


def list_pipelines() -> list[ScheduledPipeline]:
    """Return every declared pipeline, in order of declaration."""
    return [_scheduled(name) for name in registry.pipelines()]


def get_pipeline(name: str) -> ScheduledPipeline:
    """Return the pipeline of that name; raise a KeyError that suggests the nearest name if there is none."""
    return _scheduled(name)


def list_entries() -> list[RegistryEntry]:
    """Return every pipeline and transform, sorted by name."""
    loads = [RegistryEntry(name, "pipeline", item.spec.schedule) for name, item in registry.pipelines().items()]
    return sorted([*loads, *list_transforms()], key=lambda entry: entry.name)


def list_transforms() -> list[RegistryEntry]:
    """Return every transform, sorted by name."""
    found = (RegistryEntry(name, "transform", item.schedule) for name, item in registry.transforms().items())
    return sorted(found, key=lambda entry: entry.name)


def run_pipeline(name: str) -> Any:
    """Run a declared pipeline now; return its `Result`, or the return value of a function that `register` declared."""
    spec = registry.get_pipeline(name).spec
    with own_exceptions():
        done = batch.run(spec, run_log=default_run_log())
    return done if spec.loads else done.value


def backfill(name: str, *, start: Any = None, end: Any = None, chunk: str | None = None, resume: bool = False,
             redo: bool = False) -> BackfillResult:  # fmt: skip
    """Load windows of the past that are not loaded yet; times without an offset are in the pipeline's time zone."""
    spec = registry.get_pipeline(name).spec
    first, last = (moment(edge, zone=spec.timezone) if edge is not None else None for edge in (start, end))
    length = Chunk.parse(chunk) if chunk is not None else None
    return _backfill.backfill(spec, _ledger(), Order(first, last, length, resume, redo))


def gaps(name: str) -> Gaps:
    """Return which windows of a pipeline are loaded, and which are missing."""
    spec = registry.get_pipeline(name).spec
    return gaps_of(spec, _ledger().intervals(name), moment=clock_now())


def _ledger() -> _RunLog:
    run_log = default_run_log()
    if run_log is None:
        raise RunFailed("windows stand in the run log's ledger, and there is no run log", hint="make it reachable")
    return run_log


def run_transform(name: str) -> dict[str, Any]:
    """Run a declared transform on its own."""
    with own_exceptions():
        return batch.run_transform(name)


def preview(name: str, *, dry_run: bool = False) -> Preview | Result:
    """Return the plan of a declared pipeline; with `dry_run` the result of a dry run."""
    spec = registry.get_pipeline(name).spec
    return batch.rehearse(spec) if dry_run else _preview.preview(spec)


def dry_run(name: str) -> Result:
    """Dry-run a declared pipeline: stage, check and count, then roll back."""
    return batch.rehearse(registry.get_pipeline(name).spec)


def validate(name: str) -> ValidateResult:
    """Check a declared pipeline against the real systems; nothing is changed."""
    return _preview.validate(registry.get_pipeline(name).spec)


def depends_on_of(name: str) -> list[str]:
    """Return the pipelines that must have run before this one."""
    return list(registry.get_pipeline(name).spec.depends_on)


def upstream_freshness_secs_of(name: str) -> int | None:
    """Return how old the success of an upstream pipeline may be, in seconds; None without a limit."""
    return registry.get_pipeline(name).spec.upstream_freshness_secs


def retry_policy_of(name: str) -> RetryPolicy:
    """Return a pipeline's retry policy."""
    return registry.get_pipeline(name).spec.retry


def order_for_run_due(names: Sequence[str]) -> list[str]:
    """Return the same names, each after those that it depends on."""
    for name in names:
        registry.get_pipeline(name)
    return registry.order(names)


def _scheduled(name: str) -> ScheduledPipeline:
    declared = registry.get_pipeline(name)
    spec = declared.spec
    return ScheduledPipeline(name, spec.schedule, lambda: run_pipeline(name), spec.timezone)


def is_due(schedule: str | None, now: datetime, interval_seconds: float, *, tz: Any = None) -> bool:
    """Return whether the schedule fired later than `interval_seconds` before now, and not later than now."""
    return matched_fire_time(schedule, now, interval_seconds, tz=tz) is not None


def matched_fire_time(
    schedule: str | None, now: datetime, interval_seconds: float, *, tz: Any = None
) -> datetime | None:
    """Return the fire time that makes a schedule due; None when it is not due."""
    if schedule is None:
        return None
    moment = in_utc(now)
    return cron.fire_in(schedule, moment - timedelta(seconds=interval_seconds), moment, zone=str(tz) if tz else None)


def forecast_next_run(
    schedule: str | None, *, now: datetime | None = None, timezone: str | None = None
) -> datetime | None:
    """Return when the schedule fires next, in UTC; None without a schedule."""
    return cron.next_fire(schedule, in_utc(now) if now else clock_now(), zone=timezone) if schedule else None


def run_due_with_dag(due: Sequence[str], *, now: datetime | None = None, run_log: Any = None) -> list[str]:
    """Run these pipelines in the order of their depends_on; return the names of those that succeeded."""
    return [event.name for event in run_due_with_dag_detailed(due, now=now, run_log=run_log).fired]


def run_due_with_dag_detailed(due: Sequence[str], *, now: datetime | None = None, run_log: Any = None,
                              alerters: Sequence[Any] | None = None, metrics: Any = None) -> RunDueResult:  # fmt: skip
    """Run these pipelines as if their schedules had just fired, upstreams first; return what ran, failed, was skipped.

    `run_log` is a run log, its URL or a connection. Without one, backoffs, exhausted retries and upstream successes are
    kept in memory of this process, from call to call.
    """
    from ematix_flow.orchestrate.asked import run_due

    moment = in_utc(now) if now else clock_now()
    return run_due(due, now=moment, run_log=run_log, alerters=alerters or (), metrics=metrics)


def status_snapshot(*, run_log: Any = None) -> list[dict[str, Any]]:
    """Return the state of every pipeline, by name: last run, next due time, attempts, lag; ready for JSON."""
    return status.status_snapshot(run_log if run_log is not None else default_run_log() or InMemoryRunLog())


def render_status_table(snapshot: Sequence[Mapping[str, Any]]) -> str:
    """Return a snapshot as a printable table."""
    lines = [status.HEADER, *status.status_rows(snapshot)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def send_message(name: str, *, run_log: Any = None) -> list[str]:
    """Fire the workflows with this `on_message` at the next cycle of a scheduler or run-due; return their names."""
    fired = messages.listeners(name)
    messages.send(run_log if run_log is not None else _ledger(), name)
    return fired


def workflow_dag_edges(workflow_name: str) -> list[tuple[str, str]]:
    """Return the depends_on edges between the jobs of one workflow, upstream first."""
    known = workflows()
    if workflow_name not in known:
        raise UnknownName(f"no workflow is called {workflow_name!r}", hint=f"there are {', '.join(known) or 'none'}")
    jobs = known[workflow_name].jobs
    return [
        (upstream, name)
        for name in jobs
        if streams.find(name) is None
        for upstream in registry.get_pipeline(name).spec.depends_on
        if upstream in jobs
    ]
