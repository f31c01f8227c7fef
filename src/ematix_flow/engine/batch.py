"""Entry functions of batch pipelines: run, dry run, and transforms."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from ematix_flow.declare import registry
from ematix_flow.declare.engine import DISTRIBUTED, EngineWish
from ematix_flow.declare.pipeline import PipelineSpec
from ematix_flow.engine import lease, post, session, spark_errors
from ematix_flow.engine.ask import NoSource, QuerySource, ask, firing, plain_answer
from ematix_flow.engine.choice import choose
from ematix_flow.engine.context import RunContext, open_context
from ematix_flow.engine.cost import Meter, versions
from ematix_flow.engine.fingerprint import fingerprint
from ematix_flow.engine.reading import Reading, plan_reading
from ematix_flow.engine.restart import Origin, origin_of, take, transform_number
from ematix_flow.engine.result import Event, Listener, Result, TargetResult
from ematix_flow.engine.steps import StepClock, silent
from ematix_flow.engine.walk import Walk, close, outcome, refuse
from ematix_flow.engine.window import LiveWindow, WindowChoice, fired_at
from ematix_flow.families.lake.session import starting_with
from ematix_flow.foundation.clock import now
from ematix_flow.foundation.errors import ConfigError, EngineLost, FlowError, PartialFailure, RunCancelled, told_of
from ematix_flow.runlog.retention import retire_now_and_then
from ematix_flow.runlog.worker import this_worker

if TYPE_CHECKING:
    from ematix_flow.runlog.protocol import RunLog
    from ematix_flow.runlog.records import RunRecord


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
    terms: lease.Terms | None = None,
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
    meter = Meter(spec.name, listener or silent)
    choice = window or LiveWindow(spec, run_log, at=fired_at(requested))
    claimed = nullcontext() if choice.is_backfill else lease.held(run_log, spec.name, terms)
    told = {**origin.told, **({"backfill": True} if choice.is_backfill else {})}
    choice.tell_in(told)
    with (
        choice.settled(run_id),
        claimed,
        firing(origin.message),
        _recorded(run_log, spec, run_id, started_at, meter, attempt, told=told, requested=requested) as record,
    ):
        if origin.first_transform is not None:
            done = _transforms_alone(spec, run_id, meter.clock, origin, run_log)
        else:
            done = _run(spec, run_id, started_at, meter.clock, accept_deletes, choice, run_log=run_log)
        while choice.is_behind and done.status == "success":  # an earlier run left this window unfinished
            choice.done(run_id)
            more = _run(spec, str(uuid.uuid4()), started_at, meter.clock, accept_deletes, choice, run_log=run_log)
            done = _joined(done, more)
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


def rehearse(spec: PipelineSpec, *, overrides: Mapping[str, Any] | None = None, accept_deletes: int | None = None,
             listener: Listener | None = None) -> Result:  # fmt: skip
    """Do a dry run: stage, check and count, then roll back instead of publishing."""
    spec = spec.overridden(overrides)
    clock = StepClock(spec.name, listener or silent)
    return _run(spec, str(uuid.uuid4()), now(), clock, accept_deletes, rehearsal=True)


def _run(spec: PipelineSpec, run_id: str, started_at: datetime, clock: StepClock, accept_deletes: int | None,
         choice: WindowChoice | None = None, *, run_log: RunLog | None = None, rehearsal: bool = False) -> Result:  # fmt: skip
    choice = choice or WindowChoice(spec)
    if not spec.loads and not rehearsal:
        clock(Event(spec.name, "function"))
        value = plain_answer(spec, choice)
        return Result(spec.name, run_id, "success", seconds=clock.elapsed(), value=value, window=choice.text)
    load = partial(_load, spec, started_at=started_at, clock=clock, accept_deletes=accept_deletes, choice=choice,
                   run_log=run_log, rehearsal=rehearsal)  # fmt: skip
    try:
        return load(run_id)
    except EngineLost as lost:
        # Rows published before the loss, by a target of a fan-out or ahead of a transform, would be loaded twice.
        published = spec.fan_out or transform_number(lost.facts.get("step")) is not None
        if published or not session.leave_lost_engine():
            raise
    clock.session = None
    clock(Event(spec.name, "plan", "the engine was lost before the load was published; once more on another"))
    return replace(load(str(uuid.uuid4())), run_id=run_id)


def _load(spec: PipelineSpec, run_id: str, *, started_at: datetime, clock: StepClock, accept_deletes: int | None,
          choice: WindowChoice, run_log: RunLog | None, rehearsal: bool) -> Result:  # fmt: skip
    """Read, stage and publish every target, then run the post-load transforms."""

    def keep(context: RunContext, error: FlowError) -> None:
        if not rehearsal:
            refuse(context, run_id, started_at, error)

    with source_of(spec, clock, choice, unplanned=keep) as (context, reading):
        if isinstance(reading, NoSource):
            value = reading.value
            return Result(spec.name, run_id, "success", seconds=clock.elapsed(), value=value, window=choice.text)
        walk = Walk(context, run_id=run_id, started_at=started_at, clock=clock, accept_deletes=accept_deletes,
                    rehearsal=rehearsal)  # fmt: skip
        loadings = walk.load(reading)
        targets = tuple(choice.marked(outcome(loading, reading)) for loading in loadings)
        transforms: Sequence[Mapping[str, Any]] = ()
        if spec.transforms_post and not rehearsal and all(target.error is None for target in targets):
            transforms = post.run_transforms(context, targets[0], clock, partial(_run_named, run_log))
    status = "dry_run" if rehearsal else _status(targets)
    return Result(spec.name, run_id, status, targets, clock.elapsed(), spec.fan_out, None, tuple(transforms),
                  window=choice.text)  # fmt: skip


def _run_named(run_log: RunLog | None, name: str) -> Result:
    """Run a pipeline that another one names, as a separate run with its own lease, record and window."""
    return run(registry.get_pipeline(name).spec, run_log=run_log)


def _transforms_alone(
    spec: PipelineSpec, run_id: str, clock: StepClock, origin: Origin, run_log: RunLog | None
) -> Result:
    """Run only the transforms after a load that is already committed."""
    context = open_context(spec)
    load = context.loads[0]
    parent = TargetResult(load.shape.declared.qualified, "", load.load.strategy.mode, "", run_id=origin.parent)
    done = post.run_transforms(context, parent, clock, partial(_run_named, run_log), first=origin.first_transform or 0)
    return Result(spec.name, run_id, "success", (), clock.elapsed(), spec.fan_out, None, tuple(done))


def _joined(first: Result, second: Result) -> Result:
    """Return the results of two windows of one run as one result."""
    if not second.targets and second.value is not None:
        return first
    targets, transforms = first.targets + second.targets, first.transforms + second.transforms
    return replace(second, run_id=first.run_id, targets=targets, transforms=transforms)


def _status(targets: Sequence[TargetResult]) -> str:
    failed = sum(target.error is not None for target in targets)
    return "success" if failed == 0 else "partial"


@contextmanager
def source_of(
    spec: PipelineSpec,
    clock: StepClock,
    choice: WindowChoice | None = None,
    *,
    unplanned: Callable[[RunContext, FlowError], None] = lambda *_: None,
) -> Iterator[tuple[RunContext, Reading | NoSource]]:
    """Resolve connections, call the function and plan the read; everything opened is closed at the end.

    `unplanned` is called with the error when the source cannot be resolved or planned.
    """
    context = open_context(spec)
    context.clock = clock
    try:
        clock(Event(spec.name, "plan"))
        try:
            asked = ask(spec, context.spark, context.open_until, choice)
            context.stream = choice.stream if choice else ""
            if isinstance(asked, NoSource):
                yield context, asked
                return
            if isinstance(asked, QuerySource):
                context.source = asked.connection
            tasks = parallelism(spec.engine, start=lambda: context.is_one_database or context.spark())
            reading = plan_reading(context, asked, parallelism=tasks)
            context.rows = reading.plan.estimated_rows if reading.plan else None
        except Exception as exc:
            error = exc if isinstance(exc, FlowError) else spark_errors.translate(exc)
            error.facts.setdefault("step", "plan")
            unplanned(context, error)
            raise error.at(spec.where) from exc
        with starting_with(context.spark):
            yield context, reading
    except FlowError as exc:
        reason = session.reason_of(exc)
        if reason is exc:
            raise
        raise reason from exc
    finally:
        close(context.open_until)


def parallelism(said: EngineWish | None = None, *, start: Callable[[], object] | None = None) -> int:
    """Return the number of parallel read tasks, one per core; on a cluster `start` may be called to count its cores."""
    own = os.environ.get(PARALLELISM_VARIABLE, "").strip()
    if own:
        if not own.isdigit() or int(own) < 1:
            raise ConfigError(f"{PARALLELISM_VARIABLE}={own} is not a number of tasks", hint="give a whole number")
        return int(own)
    choice = choose(said)
    if choice.engine != DISTRIBUTED:
        return os.cpu_count() or 2
    known = session.cluster_cores(said) or _cores_asked_for(choice.settings)
    if known is None and start is not None:
        start()
        known = session.cluster_cores(said)
    return known or USUAL_PARALLELISM


def _cores_asked_for(settings: Mapping[str, str]) -> int | None:
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
def _recorded(run_log: RunLog | None, spec: PipelineSpec, run_id: str, started_at: datetime,
              meter: Meter, attempt: int, *, told: Mapping[str, Any],
              requested: RunRecord | None = None) -> Iterator[_Record]:  # fmt: skip
    """Record the run as running, then how it ended; a failure to write the record does not fail the run."""
    record = _Record()
    write = _writer(run_log, spec, run_id, started_at, meter, attempt, told)
    take(run_log, requested)
    write("running", record, None)
    try:
        yield record
    except BaseException as exc:
        write("cancelled" if isinstance(exc, RunCancelled) else "failed", record, exc)
        raise
    write("succeeded", record, None)


def _writer(run_log: RunLog | None, spec: PipelineSpec, run_id: str, started_at: datetime,
            meter: Meter, attempt: int, told: Mapping[str, Any]) -> Callable[..., None]:  # fmt: skip
    def write(status: str, record: _Record, error: BaseException | None) -> None:
        if run_log is None:
            return
        from ematix_flow.runlog.records import RunRecord

        ended = None if status == "running" else now()
        facts = error.facts if isinstance(error, FlowError) else {}
        extras = {**told, **({} if ended is None else _told(spec, record, meter))}
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
                    error_summary=told_of(error)[1] if error else None,
                    extras=extras,
                )
            )
            if ended is not None and "backfill" not in told:  # old windows do not reflect the pipeline's current health
                run_log.record_run(spec.name, ended, error is None)
            if ended is not None:
                retire_now_and_then(run_log)

    return write


def _told(spec: PipelineSpec, record: _Record, meter: Meter) -> dict[str, Any]:
    """Return the run's extras for the log; settings are read only after success, else the session may be lost."""
    told = record.result.to_dict() if record.result else meter.cost().to_dict()
    if record.result is not None and record.result.status == "success":
        told["settings"] = meter.settings()
    return {**told, "versions": versions(), "declaration": fingerprint(spec)}


def run_transform(name: str) -> dict[str, Any]:
    """Run a named transform on its own, and return its status, metrics and run id."""
    known = registry.get_transform(name)
    try:
        metrics = post.call_transform(known, None)
    except FlowError as exc:
        exc.at(known.where)
        raise
    except Exception as exc:
        raise post.TransformRaised(f"transform {name}", exc, where=known.where) from exc
    return {
        "status": "transform_success",
        "metrics": metrics if isinstance(metrics, Mapping) else {},
        "run_id": str(uuid.uuid4()),
    }
