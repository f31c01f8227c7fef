"""Plans a run: inspects source and targets, and decides path, lane and steps of every load; nothing is changed."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

from ematix_flow.contract.write import WriteJob, WriteSession
from ematix_flow.dataplane.spark_session import start_session_with
from ematix_flow.declare.engine import DISTRIBUTED
from ematix_flow.declare.pipeline import PipelineSpec
from ematix_flow.declare.strategy import Append
from ematix_flow.engine.batch.context import RunContext, TargetContext, open_context, parallelism
from ematix_flow.engine.batch.lanes import lane_of
from ematix_flow.engine.batch.plan import (
    Adopt,
    Ensure,
    FillStage,
    LoadPlan,
    RefusedLoad,
    Route,
    RunParameters,
    RunPlan,
    StageArrow,
    StageQuery,
    StageRows,
    transform_steps,
)
from ematix_flow.engine.batch.reading import (
    PlannedSource,
    TargetSource,
    choose_path_for,
    plan_reading,
    restricted_plan,
    restricted_query,
)
from ematix_flow.engine.batch.result import ProgressEvent
from ematix_flow.engine.batch.source import resolve_source
from ematix_flow.engine.batch.step_clock import StepClock
from ematix_flow.engine.batch.windows import WindowChoice
from ematix_flow.engine.session import session, spark_errors
from ematix_flow.engine.session.engine_choice import choose_engine
from ematix_flow.engine.sql.sources import NoSource, QuerySource
from ematix_flow.foundation.errors import FlowError, assert_never
from ematix_flow.planning.drift import plan_ddl
from ematix_flow.planning.lanes import ARROW, SPARK, LaneChoice
from ematix_flow.planning.paths import CROSS_DB, PathChoice

_T = TypeVar("_T")


@contextmanager
def open_plan(
    spec: PipelineSpec,
    parameters: RunParameters,
    clock: StepClock,
    choice: WindowChoice | None = None,
    *,
    unplanned: Callable[[RunContext, FlowError], None] = lambda *_: None,
) -> Iterator[tuple[RunContext, RunPlan | NoSource]]:
    """Resolve connections, call the function and plan the run; everything opened is closed at the end.

    Nothing is changed. `unplanned` is called with the error when the source cannot be resolved or planned.
    """
    context = open_context(spec, clock)
    try:
        clock(ProgressEvent(spec.name, "plan"))
        try:
            resolved = resolve_source(spec, context.spark, context.open_until, choice)
            if isinstance(resolved, NoSource):
                yield context, resolved
                return
            if isinstance(resolved, QuerySource):
                context.session.source = resolved.connection
            tasks = parallelism(spec.engine, start=lambda: context.is_one_database or context.spark())
            reading = plan_reading(context, resolved, parallelism=tasks)
            context.session.rows = reading.estimated_rows
        except Exception as exc:
            error = exc if isinstance(exc, FlowError) else spark_errors.translate(exc)
            error.facts.setdefault("step", "plan")
            unplanned(context, error)
            raise error.at(spec.where) from exc
        with start_session_with(context.spark):
            yield context, plan_run(context, reading, replace(parameters, window=choice.stream if choice else ""))
    except FlowError as exc:
        reason = session.error_behind(exc)
        if reason is exc:
            raise
        raise reason from exc
    finally:
        context.close()


def plan_run(context: RunContext, reading: PlannedSource, parameters: RunParameters) -> RunPlan:
    """Return the plan of a run; a target that cannot be planned is contained with its error."""
    routes = _routes(context, reading, parameters)
    # What starts Spark first may be the inspection of a target.
    context.session.in_arrow = any(isinstance(route, Route) and route.lane.lane == ARROW for route in routes)
    loads = tuple(
        _attempt(context, route, lambda it: _planned_load(context, it, reading)) if isinstance(route, Route) else route
        for route in routes
    )
    return RunPlan(reading, loads, transform_steps(context.spec))


def _attempt(context: RunContext, route: Route, work: Callable[[Route], _T]) -> _T | RefusedLoad:
    try:
        return work(route)
    except Exception as exc:
        error = exc if isinstance(exc, FlowError) else spark_errors.translate(exc)
        if error is not exc:
            error.__cause__ = exc
        error.at(context.spec.where).facts.setdefault("step", context.clock.step)
        return RefusedLoad(route, error)


def _routes(context: RunContext, reading: PlannedSource, parameters: RunParameters) -> list[Route | RefusedLoad]:
    """Return the route of every target; the rows stay in the database for all targets of a fan-out or for none."""
    way, lane = TargetSource(PathChoice(CROSS_DB, "not planned yet")), LaneChoice(SPARK, "not planned yet")
    unplanned = [Route(item, job_of(context.spec, item, parameters), way, lane) for item in context.loads]

    def routes(*, read_once: bool) -> list[Route | RefusedLoad]:
        return [
            _attempt(context, route, lambda it: _route(context, it, reading, read_once=read_once))
            for route in unplanned
        ]

    found = routes(read_once=False)
    if len({route.source.query is None for route in found if isinstance(route, Route)}) > 1:
        return routes(read_once=True)
    return found


def job_of(spec: PipelineSpec, target: TargetContext, parameters: RunParameters) -> WriteJob:
    """Return the parameters of one load for its sink; every target of a fan-out has its own run id."""
    window = parameters.window
    return WriteJob(
        run_id=str(uuid.uuid4()) if spec.fan_out else parameters.run_id,
        pipeline=spec.name,
        # A window has its own commit token: any process loads it only once.
        writer=f"{spec.name}::{target.load.table.qualified}@{window}" if window else spec.writer(target.load),
        shape=target.shape,
        strategy=target.load.strategy,
        started_at=parameters.started_at,
        mode=target.load.mode,
        incremental=spec.incremental,
        max_delete_fraction=target.load.max_delete_fraction,
        accept_deletes=parameters.accept_deletes,
        write_options=target.load.write_options,
        dry_run=parameters.dry_run,
        once=bool(window),
    )


def _route(context: RunContext, route: Route, reading: PlannedSource, *, read_once: bool) -> Route:
    source = choose_path_for(context, route.target, reading, read_once=read_once)
    on_cluster = choose_engine(context.spec.engine).engine == DISTRIBUTED
    job = replace(route.job, path=source.choice.path, on_cluster=on_cluster)
    return Route(route.target, job, source, lane_of(context, route.target, job, reading, source))


def _planned_load(context: RunContext, route: Route, reading: PlannedSource) -> LoadPlan:
    target = route.target
    context.clock(ProgressEvent(context.spec.name, "ensure", target.load.table.qualified))
    found = target.ddl.inspect(target.shape)
    ensure = Ensure(found, plan_ddl(target.shape, found, target.ddl.stored_type))
    return LoadPlan(route, ensure, _fill_stage(route, reading))


def _fill_stage(route: Route, reading: PlannedSource) -> FillStage:
    if route.source.query is not None:
        return StageQuery(route.source.query)
    if route.lane.lane == ARROW and reading.plan is not None:
        return StageArrow(reading.plan)
    return StageRows()


def refine(context: RunContext, reading: PlannedSource, load: LoadPlan, opened: WriteSession) -> LoadPlan:
    """Return the load restricted to rows from the target's watermark on, or to the adoption of a published load."""
    if opened.recovered is not None and _is_plain(load):
        return replace(load, rows=Adopt(opened.recovered))
    mark, route = opened.watermark, load.route
    if mark is None:
        return load
    match load.rows:
        case StageQuery():
            table = route.target.load.table
            return replace(load, rows=StageQuery(restricted_query(context.spec, table, reading, route.source, mark)))
        case StageArrow():
            read = restricted_plan(context, reading, mark)
            lane = lane_of(context, route.target, route.job, reading, route.source, plan=read)
            rows = StageArrow(read) if lane.lane == ARROW else StageRows(mark)
            return replace(load, route=replace(route, lane=lane), rows=rows)
        case StageRows():
            return replace(load, rows=StageRows(mark))
        case Adopt():
            return load
        case _:
            return assert_never(load.rows)


def _is_plain(load: LoadPlan) -> bool:
    """Return whether repeating a published load would only add its rows again: a plain append or a window."""
    job = load.route.job
    if job.once:
        return not load.ensure.creates  # a table that was dropped has lost the window as well
    return isinstance(job.strategy, Append) and job.incremental is None
