"""Pipelines by name, and loads without a decorator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from ematix_flow.api.decorators import DecoratedPipeline as _Declared
from ematix_flow.backfill import backfill as _backfill
from ematix_flow.backfill.backfill import BackfillResult
from ematix_flow.backfill.gaps import Gaps, gaps_of
from ematix_flow.backfill.plan import BackfillRequest
from ematix_flow.declare import registry
from ematix_flow.declare.pipeline import PipelineOptions, pipeline_from, plain_pipeline
from ematix_flow.declare.retry import RetryPolicy
from ematix_flow.declare.streams import registry as streams
from ematix_flow.declare.table import ManagedTable
from ematix_flow.declare.windows import WindowSize, parse_instant
from ematix_flow.declare.workflow import workflows
from ematix_flow.engine.batch import pipeline_run
from ematix_flow.engine.batch import preview as _preview
from ematix_flow.engine.batch.post_load import own_exceptions
from ematix_flow.engine.batch.preview import Preview, ValidateResult
from ematix_flow.engine.batch.result import Result
from ematix_flow.engine.connections.connection import LiveConnection
from ematix_flow.foundation.clock import now as clock_now
from ematix_flow.foundation.errors import RunFailed, UnknownName
from ematix_flow.foundation.location import caller
from ematix_flow.foundation.signatures import with_signature_of
from ematix_flow.run_log.default import default_run_log
from ematix_flow.run_log.memory import InMemoryRunLog
from ematix_flow.run_log.protocol import RunLog as _RunLog
from ematix_flow.run_log.records import in_utc
from ematix_flow.scheduler import cron, status, triggers
from ematix_flow.scheduler.firing import RunDueResult


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


@with_signature_of(PipelineOptions)
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
    declared = target_connection.declared if isinstance(target_connection, LiveConnection) else target_connection
    parsed = PipelineOptions.parse(
        {"target": target, "target_connection": declared, "mode": mode, "name": named, **options}, where
    )
    spec = pipeline_from(lambda: source, parsed, where)
    if dry_run:
        return pipeline_run.dry_run(spec, accept_deletes=accept_deletes)
    with own_exceptions():
        return pipeline_run.run(spec, run_log=default_run_log(), accept_deletes=accept_deletes)


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
    return [get_pipeline(name) for name in registry.pipelines()]


def get_pipeline(name: str) -> ScheduledPipeline:
    """Return the pipeline of that name; raise a KeyError that suggests the nearest name if there is none."""
    spec = registry.get_pipeline(name).spec
    return ScheduledPipeline(name, spec.schedule, lambda: run_pipeline(name), spec.timezone)


def list_entries() -> list[RegistryEntry]:
    """Return every pipeline and transform, sorted by name."""
    loads = [RegistryEntry(name, "pipeline", item.spec.schedule) for name, item in registry.pipelines().items()]
    return sorted([*loads, *list_transforms()], key=lambda entry: entry.name)


def list_transforms() -> list[RegistryEntry]:
    """Return every transform, sorted by name."""
    entries = (RegistryEntry(name, "transform", item.schedule) for name, item in registry.transforms().items())
    return sorted(entries, key=lambda entry: entry.name)


def run_pipeline(name: str) -> Any:
    """Run a declared pipeline now; return its `Result`, or the return value of a function that `register` declared."""
    spec = registry.get_pipeline(name).spec
    with own_exceptions():
        done = pipeline_run.run(spec, run_log=default_run_log())
    return done if spec.loads else done.value


def backfill(name: str, *, start: Any = None, end: Any = None, chunk: str | None = None, resume: bool = False,
             redo: bool = False) -> BackfillResult:  # fmt: skip
    """Load windows of the past that are not loaded yet; times without an offset are in the pipeline's time zone."""
    spec = registry.get_pipeline(name).spec
    first, last = (parse_instant(edge, zone=spec.timezone) if edge is not None else None for edge in (start, end))
    length = WindowSize.parse(chunk) if chunk is not None else None
    return _backfill.backfill(spec, _ledger(), BackfillRequest(first, last, length, resume, redo))


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
        return pipeline_run.run_transform(name)


def preview(name: str, *, dry_run: bool = False) -> Preview | Result:
    """Return the plan of a declared pipeline; with `dry_run` the result of a dry run."""
    spec = registry.get_pipeline(name).spec
    return pipeline_run.dry_run(spec) if dry_run else _preview.preview(spec)


def dry_run(name: str) -> Result:
    """Dry-run a declared pipeline: stage, check and count, then roll back."""
    return pipeline_run.dry_run(registry.get_pipeline(name).spec)


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
    return cron.fire_between(
        schedule, moment - timedelta(seconds=interval_seconds), moment, zone=str(tz) if tz else None
    )


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
    from ematix_flow.scheduler.run_due import run_due

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
    fired = triggers.workflows_for_message(name)
    triggers.send_message(run_log if run_log is not None else _ledger(), name)
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
