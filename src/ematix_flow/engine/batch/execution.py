"""The execution of a planned run: opens every target, reads the source, then stages and publishes target by target."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ematix_flow.contract.write import Counts, Stage, WriteResult, WriteSession
from ematix_flow.dataplane.progress import STAGED, TaskCounts, count_rows, file_bytes, total_counts
from ematix_flow.engine.batch import quality
from ematix_flow.engine.batch.context import RunContext
from ematix_flow.engine.batch.lanes import tasks_of
from ematix_flow.engine.batch.plan import (
    Adopt,
    Begin,
    CheckStage,
    EnforceChecks,
    Ensure,
    FillStage,
    LoadPlan,
    LoadStep,
    Publish,
    Refine,
    RefusedLoad,
    Route,
    RunParameters,
    RunPlan,
    Settle,
    StageArrow,
    StageQuery,
    StageRows,
    shared_read,
)
from ematix_flow.engine.batch.planner import job_of, refine
from ematix_flow.engine.batch.quality import QualityOutcome
from ematix_flow.engine.batch.reading import PlannedSource, persisted_for_targets, prepared_frame, source_frame
from ematix_flow.engine.batch.result import ProgressEvent, TargetResult
from ematix_flow.engine.batch.stage_progress import report_progress
from ematix_flow.engine.session import spark_errors
from ematix_flow.foundation import fault
from ematix_flow.foundation.errors import FlowError, LeaseLost, RunCancelled, RunFailed, assert_never
from ematix_flow.foundation.redact import mask
from ematix_flow.planning.drift import apply_drift_policy
from ematix_flow.planning.lanes import INSIDE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ematix_flow.contract.backend import QueryStage
    from ematix_flow.contract.lane import ArrowStage


@dataclass(frozen=True)
class TargetRun:
    """The state of one target between two steps."""

    load: LoadPlan | RefusedLoad
    started: float
    notes: tuple[str, ...] = ()
    opened: WriteSession | None = None
    stage: Stage | None = None
    staged: tuple[int | None, str] = (None, "")
    """Bytes written to the stage, and the kind of measurement."""
    load_seconds: float | None = None
    quality: QualityOutcome | None = None
    result: WriteResult | None = None
    error: FlowError | None = None

    @property
    def route(self) -> Route:
        """Return the way of the rows, with the write job."""
        return self.load.route

    @property
    def table(self) -> str:
        """Return the qualified name of the table."""
        return self.route.target.load.table.qualified

    @property
    def has_ended(self) -> bool:
        """Return whether no further step is executed."""
        return self.error is not None or self.result is not None

    def noting(self, *notes: str, **changes: Any) -> TargetRun:
        """Return the state with these fields and with further notes for the result."""
        return replace(self, notes=self.notes + notes, **changes)


def execute(context: RunContext, plan: RunPlan) -> tuple[TargetResult, ...]:
    """Load every target of the plan; raise the first failure unless the pipeline continues on failure."""
    runs = _Execution(context, plan.reading).run(plan)
    return tuple(target_result(run, plan.reading) for run in runs)


@dataclass(frozen=True)
class _Execution:
    """What all steps of one run share."""

    context: RunContext
    reading: PlannedSource
    progress: Path | None = None
    """The folder in which tasks count their rows."""
    frame: DataFrame | None = None
    """The rows of the shared read."""

    def run(self, plan: RunPlan) -> list[TargetRun]:
        runs = [self._start(load) for load in plan.loads]
        runs = [self._walk(run, run.load.opening) for run in runs]
        with count_rows() as progress:
            frame = self._read([run for run in runs if not run.has_ended])
            loading = replace(self, progress=progress, frame=frame)
            return [loading._walk(run, run.load.loading) for run in runs]

    def _start(self, load: LoadPlan | RefusedLoad) -> TargetRun:
        run = TargetRun(load, time.monotonic())
        return self._failed(run, load.error, load.error.__cause__) if isinstance(load, RefusedLoad) else run

    def _walk(self, run: TargetRun, steps: Iterable[LoadStep]) -> TargetRun:
        if run.has_ended:
            return run
        for step in steps:
            try:
                run = self._execute(run, step)
            except FlowError as exc:
                return self._failed(run, exc)
            except Exception as exc:
                return self._failed(run, spark_errors.translate(exc), cause=exc)
        return run

    def _failed(self, run: TargetRun, error: FlowError, cause: BaseException | None = None) -> TargetRun:
        spec, sink, job, message = self.context.spec, run.route.target.sink, run.route.job, mask(error.what)
        error.at(spec.where).facts.setdefault("step", self.context.clock.step)
        if run.opened is not None:
            published = sink.settle(job, run.opened, None, message)
            if published is not None and not isinstance(error, (RunCancelled, LeaseLost)):
                return run.noting(f"published, although an error followed: {message}", result=published)
            run = replace(run, result=published)
        elif not job.dry_run:
            sink.refused(job, message)
        if not (spec.fan_out and spec.continue_on_failure):
            raise error from cause
        return replace(run, error=error)

    def _emit(self, step: str, text: str = "", **more: Any) -> None:
        self.context.clock(ProgressEvent(self.context.spec.name, step, text, **more))

    def _read(self, runs: Sequence[TargetRun]) -> DataFrame | None:
        """Return the rows that targets share, which are read once; None if no target needs Spark rows."""
        read = shared_read(self.context.spec, [run.load for run in runs if isinstance(run.load, LoadPlan)])
        if read is None:
            return None
        self._emit("read", self.reading.kind, total=self.reading.estimated_rows)
        try:
            frame = source_frame(self.context, self.reading, read.since)
            return persisted_for_targets(frame, self.context.open_until) if read.targets > 1 else frame
        except Exception as exc:
            error = exc if isinstance(exc, FlowError) else spark_errors.translate(exc)
            error.at(self.context.spec.where).facts.setdefault("step", "read")
            for run in runs:
                if run.opened is not None:
                    run.route.target.sink.settle(run.route.job, run.opened, None, mask(error.what))
            raise error from exc

    def _execute(self, run: TargetRun, step: LoadStep) -> TargetRun:
        """Return the state after a step."""
        target, job = run.route.target, run.route.job
        match step:
            case Ensure():
                return self._ensure(run, step)
            case Begin():
                return replace(run, opened=target.sink.begin(job))
            case Refine():
                return replace(run, load=refine(self.context, self.reading, _planned(run), _opened(run)))
            case StageQuery() | StageArrow() | StageRows():
                return self._stage(run, step)
            case Adopt():
                published = step.published
                note = f"already published by run {published.run_id}, which died before it could say so"
                target.sink.settle(job, _opened(run), replace(published, counts=Counts()), None)
                return run.noting(note, result=published)
            case CheckStage():
                return self._check(run, step)
            case EnforceChecks():
                if run.quality is not None:
                    quality.enforce_policy(run.quality, step.checks)
                return run
            case Publish():
                return self._publish(run, step)
            case Settle():
                self._emit("settle")
                target.sink.settle(job, _opened(run), run.result, None)
                return run
            case _:
                return assert_never(step)

    def _ensure(self, run: TargetRun, step: Ensure) -> TargetRun:
        target, spec = run.route.target, self.context.spec
        self._emit("ensure", run.table)
        steps, warned = apply_drift_policy(step.ddl, spec.on_drift, table=run.table, where=target.load.table.where)
        if target.backend.is_lake and run.route.lane.lane != INSIDE:
            self.context.spark()
        notes = (*map(str, steps), *(f"drift: {text}" for text in warned))
        if not run.route.job.dry_run:
            target.ddl.apply(target.shape, steps)
            return run.noting(*notes)
        route = replace(run.route, job=replace(run.route.job, pending=steps))
        return run.noting(*notes, load=replace(run.load, route=route))

    def _stage(self, run: TargetRun, step: FillStage) -> TargetRun:
        """Fill the stage, and measure its seconds and bytes."""
        fault.point("before_stage")
        self._emit("stage", run.table)
        clock = self.context.clock
        began, before = clock.seconds("stage"), self._staged_so_far()
        stage = self._filled(run, step)
        seconds, seen = clock.seconds("stage") - began + clock.seconds("read"), self._staged_so_far().since(before)
        staged: tuple[int | None, str] = (None, "")
        if isinstance(step, StageQuery):
            pass  # the rows did not pass through this process
        elif seen.rows == stage.rows:  # otherwise some tasks ran where their counts are not visible
            staged = (seen.size, "arrow")
        elif stage.location is not None and (size := file_bytes(Path(stage.location))) is not None:
            staged = (size, "files")
        return replace(run, stage=stage, staged=staged, load_seconds=seconds)

    def _staged_so_far(self) -> TaskCounts:
        return total_counts(self.progress, STAGED) if self.progress is not None else TaskCounts()

    def _filled(self, run: TargetRun, step: FillStage) -> Stage:
        target, job = run.route.target, run.route.job

        def report(so_far: TaskCounts) -> None:
            rows, total = so_far.rows or None, self.reading.estimated_rows
            self._emit("stage", run.table, rows=rows, total=total, bytes_moved=so_far.size)

        match step:
            case StageQuery(query):
                return cast("QueryStage", target.sink).stage_query(job, query)
            case StageArrow(read):
                with report_progress(self.progress, report):
                    tasks = tasks_of(self.context, target, self.reading, read)
                    return cast("ArrowStage", target.sink).stage_arrow(job, tasks)
            case StageRows(since):
                if self.frame is None:
                    raise RunFailed("the source was not read")
                with report_progress(self.progress, report):
                    return target.sink.stage(job, prepared_frame(self.context, target, self.frame, since))
            case _:
                return assert_never(step)

    def _check(self, run: TargetRun, step: CheckStage) -> TargetRun:
        """Run the declared checks on the stage."""
        spec, stage = self.context.spec, _staged(run)
        self._emit("check", run.table, rows=stage.rows)
        outcome = quality.run_checks(spec.name, spec.quality, run.route.target, run.route.job, stage)
        return run.noting(*quality.check_notes(outcome), quality=outcome)

    def _publish(self, run: TargetRun, step: Publish) -> TargetRun:
        job, opened, stage = run.route.job, _opened(run), _staged(run)
        self._emit("publish", str(opened.commit), rows=stage.rows)
        fault.point("before_publish")
        if job.dry_run and step.creates:  # the table does not exist yet: every row would be new
            result = WriteResult(job.run_id, opened.commit, Counts(read=stage.rows, inserted=stage.rows))
        else:
            result = run.route.target.sink.publish(job, stage, opened)
            fault.point("after_publish")
        notes = () if result.counted else ("what will be inserted and updated is known once the table has changed",)
        return run.noting(*notes, result=result)


def _planned(run: TargetRun) -> LoadPlan:
    if not isinstance(run.load, LoadPlan):
        raise AssertionError("a refused load has no steps")
    return run.load


def _opened(run: TargetRun) -> WriteSession:
    if run.opened is None:
        raise AssertionError("the target was not opened")
    return run.opened


def _staged(run: TargetRun) -> Stage:
    if run.stage is None:
        raise AssertionError("nothing was staged")
    return run.stage


def target_result(run: TargetRun, reading: PlannedSource) -> TargetResult:
    """Return the result of the run for one target."""
    route, incremental = run.route, run.route.job.incremental
    counts = run.result.counts if run.result else Counts()
    notes = run.notes
    if counts.null_watermarks and incremental:
        notes += (f"{counts.null_watermarks} row(s) have no watermark: NULL in {incremental.column}",)
    return TargetResult(
        table=run.table,
        connection=str(route.target.connection.name),
        mode=route.job.strategy.mode,
        path=route.source.choice.path,
        lane=route.lane.lane,
        status="failed" if run.error else "success",
        rows_read=counts.read,
        rows_inserted=counts.inserted,
        rows_updated=counts.updated,
        rows_unchanged=counts.unchanged,
        rows_closed=counts.closed,
        rows_deleted=counts.deleted,
        watermark=run.result.watermark if run.result else None,
        seconds=round(time.monotonic() - run.started, 3),
        run_id=run.result.run_id if run.result else route.job.run_id,
        error=mask(run.error.what) if run.error else None,
        notes=notes,
        source_kind=reading.kind,
        target_kind=route.target.backend.name,
        path_reason=route.source.choice.reason,
        lane_reason=route.lane.reason,
        bytes_staged=run.staged[0],
        bytes_of=run.staged[1],
        load_seconds=round(run.load_seconds, 3) if run.load_seconds is not None else None,
        quality=run.quality.to_dict() if run.quality is not None else None,
    )


def record_refusal(context: RunContext, parameters: RunParameters, error: FlowError) -> None:
    """Record in the history of every target that the run failed before it could be planned."""
    for target in context.loads:
        target.sink.refused(job_of(context.spec, target, parameters), mask(error.what))
