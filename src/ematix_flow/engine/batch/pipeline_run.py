"""Runs batch pipelines: run, dry run, single transforms."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ematix_flow.declare import registry
from ematix_flow.declare.pipeline import PipelineSpec
from ematix_flow.engine.batch import post_load
from ematix_flow.engine.batch.context import RunContext, open_context
from ematix_flow.engine.batch.cost import CostMeter
from ematix_flow.engine.batch.execution import execute, record_refusal
from ematix_flow.engine.batch.plan import RunParameters, transform_steps
from ematix_flow.engine.batch.planner import open_plan
from ematix_flow.engine.batch.result import Listener, ProgressEvent, Result, TargetResult
from ematix_flow.engine.batch.run_recording import RunRecording
from ematix_flow.engine.batch.run_request import RunOrigin, origin_of, transform_number
from ematix_flow.engine.batch.source import call_plain_function, triggered_by_message
from ematix_flow.engine.batch.step_clock import StepClock, ignore_events
from ematix_flow.engine.batch.windows import LiveWindow, WindowChoice, slot_time
from ematix_flow.engine.session import session
from ematix_flow.engine.sql.sources import NoSource
from ematix_flow.foundation.clock import now
from ematix_flow.foundation.errors import EngineLost, FlowError, PartialFailure
from ematix_flow.run_log import lease

if TYPE_CHECKING:
    from ematix_flow.run_log.protocol import RunLog
    from ematix_flow.run_log.records import RunRecord


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
    run_id = run_id or str(uuid.uuid4())
    parameters = RunParameters(run_id, now(), accept_deletes)
    meter = CostMeter(spec.name, listener or ignore_events)
    choice = window or LiveWindow(spec, run_log, at=slot_time(requested))
    claimed = nullcontext() if choice.is_backfill else lease.hold_lease(run_log, spec.name, terms)
    extras = {**origin.record_extras, **({"backfill": True} if choice.is_backfill else {})}
    choice.add_to_record(extras)
    recording = RunRecording(run_log, spec, parameters, meter, attempt, requested, extras)
    with (
        choice.recorded_outcome(run_id),
        claimed,
        triggered_by_message(origin.message),
        recording,
    ):
        if origin.first_transform is not None:
            done = _transforms_alone(spec, run_id, meter.clock, origin, run_log)
        else:
            done = _run(spec, parameters, meter.clock, choice, run_log)
        while choice.is_behind and done.status == "success":  # an earlier run left this window unfinished
            choice.done(run_id)
            following = replace(parameters, run_id=str(uuid.uuid4()))
            done = _combined_result(done, _run(spec, following, meter.clock, choice, run_log))
        result = recording.result = replace(done, cost=meter.cost())
        _refuse_partial(spec, result)
        return result


def _refuse_partial(spec: PipelineSpec, result: Result) -> None:
    """Raise PartialFailure if some targets of a fan-out failed."""
    failed = [target for target in result.targets if target.error]
    if result.status == "partial":
        raise PartialFailure(
            f"{len(failed)} of {len(result.targets)} targets of {spec.name} failed: "
            + "; ".join(f"{target.table}: {target.error}" for target in failed),
            where=spec.where,
            hint="the others are loaded; correct these and run again",
            result=result,
        )


def dry_run(spec: PipelineSpec, *, overrides: Mapping[str, Any] | None = None, accept_deletes: int | None = None,
             listener: Listener | None = None) -> Result:  # fmt: skip
    """Do a dry run: stage, check and count, then roll back instead of publishing."""
    spec = spec.overridden(overrides)
    clock = StepClock(spec.name, listener or ignore_events)
    parameters = RunParameters(str(uuid.uuid4()), now(), accept_deletes, dry_run=True)
    return _load_somewhere(spec, parameters, clock, WindowChoice(spec), None)


def _run(
    spec: PipelineSpec, parameters: RunParameters, clock: StepClock, choice: WindowChoice, run_log: RunLog | None
) -> Result:
    if spec.loads:
        return _load_somewhere(spec, parameters, clock, choice, run_log)
    clock(ProgressEvent(spec.name, "function"))
    value = call_plain_function(spec, choice)
    return Result(spec.name, parameters.run_id, "success", seconds=clock.elapsed(), value=value, window=choice.text)


def _load_somewhere(
    spec: PipelineSpec, parameters: RunParameters, clock: StepClock, choice: WindowChoice, run_log: RunLog | None
) -> Result:
    """Load, and once more on another engine if a warm one was lost before anything was published."""
    try:
        return _load(spec, parameters, clock, choice, run_log)
    except EngineLost as lost:
        # Rows published before the loss, by a target of a fan-out or ahead of a transform, would be loaded twice.
        published = spec.fan_out or transform_number(lost.facts.get("step")) is not None
        if published or not session.leave_lost_session():
            raise
    clock.session = None
    clock(ProgressEvent(spec.name, "plan", "the engine was lost before the load was published; once more on another"))
    again = replace(parameters, run_id=str(uuid.uuid4()))
    return replace(_load(spec, again, clock, choice, run_log), run_id=parameters.run_id)


def _load(
    spec: PipelineSpec, parameters: RunParameters, clock: StepClock, choice: WindowChoice, run_log: RunLog | None
) -> Result:
    """Plan the run, load every target by the plan, then run the transforms."""
    run_id, dry_run = parameters.run_id, parameters.dry_run

    def keep(context: RunContext, error: FlowError) -> None:
        if not dry_run:
            record_refusal(context, parameters, error)

    with open_plan(spec, parameters, clock, choice, unplanned=keep) as (context, plan):
        if isinstance(plan, NoSource):
            return Result(spec.name, run_id, "success", seconds=clock.elapsed(), value=plan.value, window=choice.text)
        targets = tuple(choice.with_watermark(target) for target in execute(context, plan))
        transforms: Sequence[Mapping[str, Any]] = ()
        if not dry_run and all(target.error is None for target in targets):
            transforms = post_load.run_transforms(context, plan.transforms, targets[0], partial(_run_named, run_log))
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
    context = open_context(spec, clock)
    load = context.loads[0]
    parent = TargetResult(load.shape.declared.qualified, "", load.load.strategy.mode, "", run_id=origin.parent)
    steps = transform_steps(spec)[origin.first_transform or 0 :]
    done = post_load.run_transforms(context, steps, parent, partial(_run_named, run_log))
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
