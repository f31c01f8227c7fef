"""Runs batch pipelines: run, dry run, single transforms."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from ematix_flow.dataplane.spark_session import start_session_with
from ematix_flow.declare import registry
from ematix_flow.declare.engine import DISTRIBUTED, EngineOptions
from ematix_flow.declare.fingerprint import fingerprint
from ematix_flow.declare.pipeline import PipelineSpec
from ematix_flow.engine.batch import post_load
from ematix_flow.engine.batch.context import RunContext, open_context
from ematix_flow.engine.batch.cost import CostMeter, component_versions
from ematix_flow.engine.batch.execution import Execution, close_quietly, record_refusal, target_result
from ematix_flow.engine.batch.reading import PlannedSource, plan_reading
from ematix_flow.engine.batch.result import Listener, ProgressEvent, Result, TargetResult
from ematix_flow.engine.batch.run_request import RunOrigin, claim_requested_run, origin_of, transform_number
from ematix_flow.engine.batch.source import call_plain_function, resolve_source, triggered_by_message
from ematix_flow.engine.batch.step_clock import StepClock, ignore_events
from ematix_flow.engine.batch.windows import LiveWindow, WindowChoice, slot_time
from ematix_flow.engine.session import session, spark_errors
from ematix_flow.engine.session.engine_choice import choose_engine
from ematix_flow.engine.sql.sources import NoSource, QuerySource
from ematix_flow.foundation.clock import now
from ematix_flow.foundation.errors import ConfigError, EngineLost, FlowError, PartialFailure, RunCancelled, error_facts
from ematix_flow.run_log import lease
from ematix_flow.run_log.retention import retire_runs_occasionally
from ematix_flow.run_log.worker import this_worker

if TYPE_CHECKING:
    from ematix_flow.run_log.protocol import RunLog
    from ematix_flow.run_log.records import RunRecord


PARALLELISM_VARIABLE = "EMATIX_FLOW_PARALLELISM"
USUAL_PARALLELISM = 8


def run(
    spec: PipelineSpec,
    *,
    overrides: Mapping[str, Any] | None = None,
    run_log: RunLog | None = None,
    accept_deletes: int | None = None,
    listener: Listener | None = None,
    run_id: str | None = None,
    attempt: int = 1,
    window: WindowChoice | None = None,
    requested: RunRecord | None = None,
    terms: lease.LeaseTerms | None = None,
) -> Result:
    """Run a pipeline once and return its result; raise a FlowError when it fails.

    A pipeline that reads by windows loads everything since the end of its interval ledger, unless it is given a window.
    `requested` is claimed from the run queue; `terms` are those of the pipeline's lease.
    """
    spec = spec.overridden(overrides)
    origin = origin_of(requested, spec, run_log)
    if requested is not None:
        run_id, attempt = requested.run_id, requested.attempt
    run_id, started_at = run_id or str(uuid.uuid4()), now()
    meter = CostMeter(spec.name, listener or ignore_events)
    choice = window or LiveWindow(spec, run_log, at=slot_time(requested))
    claimed = nullcontext() if choice.is_backfill else lease.hold_lease(run_log, spec.name, terms)
    extras = {**origin.record_extras, **({"backfill": True} if choice.is_backfill else {})}
    choice.add_to_record(extras)
    with (
        choice.recorded_outcome(run_id),
        claimed,
        triggered_by_message(origin.message),
        _recording(run_log, spec, run_id, started_at, meter, attempt, extras=extras, requested=requested) as record,
    ):
        if origin.first_transform is not None:
            done = _transforms_alone(spec, run_id, meter.clock, origin, run_log)
        else:
            done = _run(spec, run_id, started_at, meter.clock, accept_deletes, choice, run_log=run_log)
        while choice.is_behind and done.status == "success":  # an earlier run left this window unfinished
            choice.done(run_id)
            more = _run(spec, str(uuid.uuid4()), started_at, meter.clock, accept_deletes, choice, run_log=run_log)
            done = _combined_result(done, more)
        result = record.result = replace(done, cost=meter.cost())
        if result.status == "partial":
            failed = [target for target in result.targets if target.error]
            raise PartialFailure(
                f"{len(failed)} of {len(result.targets)} targets of {spec.name} failed: "
                + "; ".join(f"{target.table}: {target.error}" for target in failed),
                where=spec.where,
                hint="the others are loaded; correct these and run again",
                result=result,
            )
        return result


def dry_run(spec: PipelineSpec, *, overrides: Mapping[str, Any] | None = None, accept_deletes: int | None = None,
             listener: Listener | None = None) -> Result:  # fmt: skip
    """Do a dry run: stage, check and count, then roll back instead of publishing."""
    spec = spec.overridden(overrides)
    clock = StepClock(spec.name, listener or ignore_events)
    return _run(spec, str(uuid.uuid4()), now(), clock, accept_deletes, dry_run=True)


def _run(spec: PipelineSpec, run_id: str, started_at: datetime, clock: StepClock, accept_deletes: int | None,
         choice: WindowChoice | None = None, *, run_log: RunLog | None = None, dry_run: bool = False) -> Result:  # fmt: skip
    choice = choice or WindowChoice(spec)
    if not spec.loads and not dry_run:
        clock(ProgressEvent(spec.name, "function"))
        value = call_plain_function(spec, choice)
        return Result(spec.name, run_id, "success", seconds=clock.elapsed(), value=value, window=choice.text)
    load = partial(_load, spec, started_at=started_at, clock=clock, accept_deletes=accept_deletes, choice=choice,
                   run_log=run_log, dry_run=dry_run)  # fmt: skip
    try:
        return load(run_id)
    except EngineLost as lost:
        # Rows published before the loss, by a target of a fan-out or ahead of a transform, would be loaded twice.
        published = spec.fan_out or transform_number(lost.facts.get("step")) is not None
        if published or not session.leave_lost_session():
            raise
    clock.session = None
    clock(ProgressEvent(spec.name, "plan", "the engine was lost before the load was published; once more on another"))
    return replace(load(str(uuid.uuid4())), run_id=run_id)


def _load(spec: PipelineSpec, run_id: str, *, started_at: datetime, clock: StepClock, accept_deletes: int | None,
          choice: WindowChoice, run_log: RunLog | None, dry_run: bool) -> Result:  # fmt: skip
    """Read, stage and publish every target, then run the post-load transforms."""

    def keep(context: RunContext, error: FlowError) -> None:
        if not dry_run:
            record_refusal(context, run_id, started_at, error)

    with open_planned_source(spec, clock, choice, unplanned=keep) as (context, reading):
        if isinstance(reading, NoSource):
            value = reading.value
            return Result(spec.name, run_id, "success", seconds=clock.elapsed(), value=value, window=choice.text)
        walk = Execution(context, run_id=run_id, started_at=started_at, clock=clock, accept_deletes=accept_deletes,
                    dry_run=dry_run)  # fmt: skip
        loadings = walk.load(reading)
        targets = tuple(choice.with_watermark(target_result(loading, reading)) for loading in loadings)
        transforms: Sequence[Mapping[str, Any]] = ()
        if spec.transforms_post and not dry_run and all(target.error is None for target in targets):
            transforms = post_load.run_transforms(context, targets[0], clock, partial(_run_named, run_log))
    status = "dry_run" if dry_run else _status(targets)
    return Result(spec.name, run_id, status, targets, clock.elapsed(), spec.fan_out, None, tuple(transforms),
                  window=choice.text)  # fmt: skip


def _run_named(run_log: RunLog | None, name: str) -> Result:
    """Run a pipeline that another one names, as a separate run with its own lease, record and window."""
    return run(registry.get_pipeline(name).spec, run_log=run_log)


def _transforms_alone(
    spec: PipelineSpec, run_id: str, clock: StepClock, origin: RunOrigin, run_log: RunLog | None
) -> Result:
    """Run only the transforms after a load that is already committed."""
    context = open_context(spec)
    load = context.loads[0]
    parent = TargetResult(load.shape.declared.qualified, "", load.load.strategy.mode, "", run_id=origin.parent)
    done = post_load.run_transforms(
        context, parent, clock, partial(_run_named, run_log), first=origin.first_transform or 0
    )
    return Result(spec.name, run_id, "success", (), clock.elapsed(), spec.fan_out, None, tuple(done))


def _combined_result(first: Result, second: Result) -> Result:
    """Return the results of two windows of one run as one result."""
    if not second.targets and second.value is not None:
        return first
    targets, transforms = first.targets + second.targets, first.transforms + second.transforms
    return replace(second, run_id=first.run_id, targets=targets, transforms=transforms)


def _status(targets: Sequence[TargetResult]) -> str:
    failed = sum(target.error is not None for target in targets)
    return "success" if failed == 0 else "partial"


@contextmanager
def open_planned_source(
    spec: PipelineSpec,
    clock: StepClock,
    choice: WindowChoice | None = None,
    *,
    unplanned: Callable[[RunContext, FlowError], None] = lambda *_: None,
) -> Iterator[tuple[RunContext, PlannedSource | NoSource]]:
    """Resolve connections, call the function and plan the read; everything opened is closed at the end.

    `unplanned` is called with the error when the source cannot be resolved or planned.
    """
    context = open_context(spec)
    context.clock = clock
    try:
        clock(ProgressEvent(spec.name, "plan"))
        try:
            resolved = resolve_source(spec, context.spark, context.open_until, choice)
            context.stream = choice.stream if choice else ""
            if isinstance(resolved, NoSource):
                yield context, resolved
                return
            if isinstance(resolved, QuerySource):
                context.source = resolved.connection
            tasks = parallelism(spec.engine, start=lambda: context.is_one_database or context.spark())
            reading = plan_reading(context, resolved, parallelism=tasks)
            context.rows = reading.plan.estimated_rows if reading.plan else None
        except Exception as exc:
            error = exc if isinstance(exc, FlowError) else spark_errors.translate(exc)
            error.facts.setdefault("step", "plan")
            unplanned(context, error)
            raise error.at(spec.where) from exc
        with start_session_with(context.spark):
            yield context, reading
    except FlowError as exc:
        reason = session.error_behind(exc)
        if reason is exc:
            raise
        raise reason from exc
    finally:
        close_quietly(context.open_until)


def parallelism(options: EngineOptions | None = None, *, start: Callable[[], object] | None = None) -> int:
    """Return the number of parallel read tasks, one per core; on a cluster `start` may be called to count its cores."""
    own = os.environ.get(PARALLELISM_VARIABLE, "").strip()
    if own:
        if not own.isdigit() or int(own) < 1:
            raise ConfigError(f"{PARALLELISM_VARIABLE}={own} is not a number of tasks", hint="give a whole number")
        return int(own)
    choice = choose_engine(options)
    if choice.engine != DISTRIBUTED:
        return os.cpu_count() or 2
    known = session.cluster_cores(options) or _requested_cores(choice.settings)
    if known is None and start is not None:
        start()
        known = session.cluster_cores(options)
    return known or USUAL_PARALLELISM


def _requested_cores(settings: Mapping[str, str]) -> int | None:
    most = settings.get("spark.cores.max", "")
    if most.isdigit():
        return int(most)
    executors, each = settings.get("spark.executor.instances", ""), settings.get("spark.executor.cores", "1")
    return int(executors) * int(each) if executors.isdigit() and each.isdigit() else None


@dataclass
class _Record:
    """The result that the run log will record."""

    result: Result | None = None


@contextmanager
def _recording(run_log: RunLog | None, spec: PipelineSpec, run_id: str, started_at: datetime,
              meter: CostMeter, attempt: int, *, extras: Mapping[str, Any],
              requested: RunRecord | None = None) -> Iterator[_Record]:  # fmt: skip
    """Record the run as running, then how it ended; a failure to write the record does not fail the run."""
    record = _Record()
    write = _record_writer(run_log, spec, run_id, started_at, meter, attempt, extras)
    claim_requested_run(run_log, requested)
    write("running", record, None)
    try:
        yield record
    except BaseException as exc:
        write("cancelled" if isinstance(exc, RunCancelled) else "failed", record, exc)
        raise
    write("succeeded", record, None)


def _record_writer(run_log: RunLog | None, spec: PipelineSpec, run_id: str, started_at: datetime,
            meter: CostMeter, attempt: int, own_extras: Mapping[str, Any]) -> Callable[..., None]:  # fmt: skip
    def write(status: str, record: _Record, error: BaseException | None) -> None:
        if run_log is None:
            return
        from ematix_flow.run_log.records import RunRecord

        ended = None if status == "running" else now()
        facts = error.facts if isinstance(error, FlowError) else {}
        extras = {**own_extras, **({} if ended is None else _record_extras(spec, record, meter))}
        extras["worker"] = this_worker()  # distinguishes a crashed run from a long one
        if isinstance(error, FlowError):
            error.facts.setdefault("run_id", run_id)
            extras["error"] = error.to_dict()
        with suppress(FlowError):
            run_log.record_run_record(
                RunRecord(
                    run_id=run_id,
                    pipeline=spec.name,
                    status=status,
                    started_at=started_at,
                    finished_at=ended,
                    attempt=attempt,
                    failed_step=str(facts["step"]) if "step" in facts else None,
                    error_summary=error_facts(error)[1] if error else None,
                    extras=extras,
                )
            )
            if (
                ended is not None and "backfill" not in own_extras
            ):  # old windows do not reflect the pipeline's current health
                run_log.record_run(spec.name, ended, error is None)
            if ended is not None:
                retire_runs_occasionally(run_log)

    return write


def _record_extras(spec: PipelineSpec, record: _Record, meter: CostMeter) -> dict[str, Any]:
    """Return the run's extras for the log; settings are read only after success, else the session may be lost."""
    extras = record.result.to_dict() if record.result else meter.cost().to_dict()
    if record.result is not None and record.result.status == "success":
        extras["settings"] = meter.settings()
    return {**extras, "versions": component_versions(), "declaration": fingerprint(spec)}


def run_transform(name: str) -> dict[str, Any]:
    """Run a named transform on its own, and return its status, metrics and run id."""
    known = registry.get_transform(name)
    try:
        metrics = post_load.call_transform(known, None)
    except FlowError as exc:
        exc.at(known.where)
        raise
    except Exception as exc:
        raise post_load.TransformRaised(f"transform {name}", exc, where=known.where) from exc
    return {
        "status": "transform_success",
        "metrics": metrics if isinstance(metrics, Mapping) else {},
        "run_id": str(uuid.uuid4()),
    }
