"""The execution of a batch run: ensure, open, read, stage, publish, settle."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ematix_flow.contract.ddl import CreateTable
from ematix_flow.contract.read import ReadPlan
from ematix_flow.contract.write import Counts, Stage, WriteJob, WriteResult, WriteSession
from ematix_flow.dataplane.progress import STAGED, TaskCounts, count_rows, file_bytes, total_counts
from ematix_flow.declare.engine import DISTRIBUTED
from ematix_flow.declare.pipeline import PipelineSpec
from ematix_flow.declare.strategy import Append
from ematix_flow.engine.batch import quality
from ematix_flow.engine.batch.context import RunContext, TargetContext
from ematix_flow.engine.batch.lanes import lane_of, tasks_of
from ematix_flow.engine.batch.quality import QualityOutcome
from ematix_flow.engine.batch.reading import (
    PlannedSource,
    TargetSource,
    choose_path_for,
    earliest_watermark,
    persisted_for_targets,
    prepared_frame,
    restricted_plan,
    restricted_query,
    source_frame,
)
from ematix_flow.engine.batch.result import ProgressEvent, TargetResult
from ematix_flow.engine.batch.stage_progress import report_progress
from ematix_flow.engine.batch.step_clock import StepClock
from ematix_flow.engine.session import spark_errors
from ematix_flow.engine.session.engine_choice import choose_engine as choose_engine
from ematix_flow.foundation import fault
from ematix_flow.foundation.errors import FlowError, LeaseLost, RunCancelled, RunFailed
from ematix_flow.foundation.redact import mask
from ematix_flow.planning.drift import apply_drift_policy, plan_ddl
from ematix_flow.planning.lanes import ARROW, INSIDE, SPARK, LaneChoice
from ematix_flow.planning.paths import CROSS_DB, PathChoice

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ematix_flow.contract.backend import QueryStage
    from ematix_flow.contract.lane import ArrowStage


@dataclass
class TargetRun:
    """The state of one target during the run."""

    target: TargetContext
    job: WriteJob
    inside: TargetSource
    lane: LaneChoice
    plan: ReadPlan | None = None
    """The read restricted by the watermark, for the Arrow lane."""
    write_session: WriteSession | None = None
    notes: tuple[str, ...] = ()
    started: float = 0.0
    creates: bool = False
    error: FlowError | None = None
    result: WriteResult | None = None
    staged: tuple[int | None, str] = (None, "")
    """Bytes written to the stage, and the kind of measurement."""
    load_seconds: float | None = None
    quality: QualityOutcome | None = None


class Execution:
    """The execution of one run, target by target."""

    def __init__(self, context: RunContext, *, run_id: str, started_at: datetime, clock: StepClock,
                 accept_deletes: int | None = None, dry_run: bool = False) -> None:  # fmt: skip
        self.context = context
        self.run_id = run_id
        self.started_at = started_at
        self.clock = clock
        self.accept_deletes = accept_deletes
        self.dry_run = dry_run
        self.step = "plan"
        self._progress: Path | None = None

    def load(self, reading: PlannedSource) -> list[TargetRun]:
        """Load every target of the run; a failing one stops the run unless the pipeline continues on failure."""
        loadings = self._planned(reading)
        for loading in loadings:
            if loading.error is None:
                self._attempt(loading, lambda item: self._open(item, reading))
        alive = [item for item in loadings if item.error is None]
        with count_rows() as self._progress:
            frame = self._shared_frame(reading, alive)
            for loading in alive:
                self._attempt(loading, lambda item: self._write(item, reading, frame))
        return loadings

    def _attempt(self, loading: TargetRun, work: Callable[[TargetRun], None]) -> TargetRun:
        try:
            work(loading)
        except FlowError as exc:
            self._failed(loading, exc)
        except Exception as exc:
            self._failed(loading, spark_errors.translate(exc), cause=exc)
        return loading

    def _failed(self, loading: TargetRun, error: FlowError, cause: Exception | None = None) -> None:
        error.at(self.context.spec.where)
        error.facts.setdefault("step", self.step)
        if loading.write_session is not None:
            loading.result = loading.target.sink.settle(loading.job, loading.write_session, None, mask(error.what))
            if loading.result is not None and not isinstance(error, (RunCancelled, LeaseLost)):
                loading.notes += (f"published, although an error followed: {mask(error.what)}",)
                return
        elif not self.dry_run:
            loading.target.sink.refused(loading.job, mask(error.what))
        loading.error = error
        if not (self.context.spec.fan_out and self.context.spec.continue_on_failure):
            raise error from cause

    def _emit(self, step: str, text: str = "", **more: Any) -> None:
        self.step = step
        self.clock(ProgressEvent(self.context.spec.name, step, text, **more))

    def _planned(self, reading: PlannedSource) -> list[TargetRun]:
        """Return every target with its path; the rows stay in the database for all targets of a fan-out or for none."""
        loadings = [self._unplanned(target) for target in self.context.loads]
        for loading in loadings:
            self._attempt(loading, lambda item: self._plan(item, reading))
        if len({item.inside.query is None for item in loadings if item.error is None}) > 1:
            self.context.read_once = True
            for loading in loadings:
                if loading.error is None:
                    self._attempt(loading, lambda item: self._plan(item, reading))
        return loadings

    def _unplanned(self, target: TargetContext) -> TargetRun:
        run_id = str(uuid.uuid4()) if self.context.spec.fan_out else self.run_id
        inside = TargetSource(PathChoice(CROSS_DB, "not planned yet"))
        planned = job_of(self.context.spec, target, inside, run_id=run_id, started_at=self.started_at)
        job = replace(planned, accept_deletes=self.accept_deletes, dry_run=self.dry_run)
        if self.context.stream:  # a window has its own commit token: any process loads it only once
            table = target.load.table.qualified
            job = replace(job, writer=f"{job.pipeline}::{table}@{self.context.stream}", once=True)
        return TargetRun(target, job, inside, LaneChoice(SPARK, "not planned yet"), started=time.monotonic())

    def _plan(self, loading: TargetRun, reading: PlannedSource) -> None:
        loading.inside = choose_path_for(self.context, loading.target, reading)
        loading.job = replace(loading.job, path=loading.inside.choice.path)
        loading.lane = lane_of(self.context, loading.target, loading.job, reading, loading.inside)
        self.context.in_arrow = loading.lane.lane == ARROW

    def _open(self, loading: TargetRun, reading: PlannedSource) -> None:
        """Bring the table to its shape, then get the commit token and the watermark."""
        target, spec = loading.target, self.context.spec
        self._emit("ensure", target.load.table.qualified)
        if target.backend.is_lake and loading.lane.lane != INSIDE:
            self.context.spark()
        plan = plan_ddl(target.shape, target.ddl.inspect(target.shape), target.ddl.stored_type)
        steps, warned = apply_drift_policy(
            plan, spec.on_drift, table=target.load.table.qualified, where=target.load.table.where
        )
        loading.creates = any(isinstance(step, CreateTable) for step in steps)
        loading.notes = tuple(str(step) for step in steps) + tuple(f"drift: {text}" for text in warned)
        if self.dry_run:
            loading.job = replace(loading.job, pending=steps)
        else:
            target.ddl.apply(target.shape, steps)
        loading.write_session = target.sink.begin(loading.job)
        mark = loading.write_session.watermark
        if mark is not None and loading.inside.query is None and loading.lane.lane != SPARK:
            loading.plan = restricted_plan(self.context, reading, mark)
            loading.lane = lane_of(self.context, target, loading.job, reading, loading.inside, plan=loading.plan)

    def _shared_frame(self, reading: PlannedSource, loadings: list[TargetRun]) -> DataFrame | None:
        """Return the source as one dataframe that is read once for all targets, None if no target needs Spark rows."""
        if not any(self._needs_rows(item) and item.lane.lane == SPARK for item in loadings):
            return None
        marks = [
            item.write_session.watermark if item.write_session else None for item in loadings if self._needs_rows(item)
        ]
        start = earliest_watermark(marks, self.context.spec)
        self._emit("read", reading.kind, total=reading.plan.estimated_rows if reading.plan else None)
        try:
            frame = source_frame(self.context, reading, start)
            return persisted_for_targets(frame, self.context.open_until) if len(loadings) > 1 else frame
        except FlowError as exc:
            raise self._all_failed(loadings, exc) from exc
        except Exception as exc:
            raise self._all_failed(loadings, spark_errors.translate(exc)) from exc

    def _all_failed(self, loadings: list[TargetRun], error: FlowError) -> FlowError:
        error.at(self.context.spec.where)
        error.facts.setdefault("step", "read")
        for loading in loadings:
            if loading.write_session is not None:
                loading.target.sink.settle(loading.job, loading.write_session, None, mask(error.what))
        return error

    def _needs_rows(self, loading: TargetRun) -> bool:
        return not self._is_recovered(loading)

    def _is_recovered(self, loading: TargetRun) -> bool:
        """Return whether a crashed run already published this plain append or window; it is not loaded again."""
        write_session, job = loading.write_session, loading.job
        if job.once and loading.creates:  # the table was dropped, and the window with it
            return False
        plain = job.once or (isinstance(job.strategy, Append) and job.incremental is None)
        return write_session is not None and write_session.recovered is not None and plain

    def _write(self, loading: TargetRun, reading: PlannedSource, frame: DataFrame | None) -> None:
        write_session = loading.write_session
        if write_session is None:
            raise RunFailed("the target was not opened")
        if write_session.recovered is not None and self._is_recovered(loading):
            loading.result = write_session.recovered
            loading.notes += (
                f"already published by run {write_session.recovered.run_id}, which died before it could say so",
            )
            loading.target.sink.settle(
                loading.job, write_session, replace(write_session.recovered, counts=Counts()), None
            )
            return
        fault.point("before_stage")
        self._emit("stage", loading.target.load.table.qualified)
        stage = self._measured(loading, lambda: self._stage(loading, reading, frame))
        self._check(loading, stage)
        self._emit("publish", str(write_session.commit), rows=stage.rows)
        fault.point("before_publish")
        if self.dry_run and loading.creates:  # the table does not exist yet: every row would be new
            counts = Counts(read=stage.rows, inserted=stage.rows)
            loading.result = WriteResult(loading.job.run_id, write_session.commit, counts)
        else:
            loading.result = loading.target.sink.publish(loading.job, stage, write_session)
            fault.point("after_publish")
        if not loading.result.counted:
            loading.notes += ("what will be inserted and updated is known once the table has changed",)
        self._emit("settle")
        loading.target.sink.settle(loading.job, write_session, loading.result, None)

    def _check(self, loading: TargetRun, stage: Stage) -> None:
        """Run the declared checks on the stage; raise if the policy forbids publishing it."""
        checks = loading.target.load.checks
        if not checks:
            return
        self._emit("check", loading.target.load.table.qualified, rows=stage.rows)
        spec = self.context.spec
        job = replace(loading.job, on_cluster=choose_engine(spec.engine).engine == DISTRIBUTED)
        loading.quality = quality.run_checks(spec.name, spec.quality, loading.target, job, stage)
        loading.notes += quality.check_notes(loading.quality)
        quality.enforce_policy(loading.quality, checks)

    def _measured(self, loading: TargetRun, fill: Callable[[], Stage]) -> Stage:
        """Fill the stage, and record its seconds and bytes."""
        began, before = self.clock.seconds("stage"), self._staged_so_far()
        stage = fill()
        loading.load_seconds = self.clock.seconds("stage") - began + self.clock.seconds("read")
        seen = self._staged_so_far().since(before)
        if loading.inside.query is not None:
            return stage
        if seen.rows == stage.rows:  # otherwise some tasks ran where their counts are not visible
            loading.staged = (seen.size, "arrow")
        elif stage.location is not None and (size := file_bytes(Path(stage.location))) is not None:
            loading.staged = (size, "files")
        return stage

    def _staged_so_far(self) -> TaskCounts:
        return total_counts(self._progress, STAGED) if self._progress is not None else TaskCounts()

    def _stage(self, loading: TargetRun, reading: PlannedSource, frame: DataFrame | None) -> Stage:
        mark = loading.write_session.watermark if loading.write_session else None
        incremental = self.context.spec.incremental
        if loading.inside.query is not None:
            query = loading.inside.query
            if incremental is not None:
                query = restricted_query(loading.target, reading, loading.inside, incremental, mark)
            return cast("QueryStage", loading.target.sink).stage_query(loading.job, query)
        table, total = loading.target.load.table.qualified, reading.plan.estimated_rows if reading.plan else None

        def tell(so_far: TaskCounts) -> None:
            self._emit("stage", table, rows=so_far.rows or None, total=total, bytes_moved=so_far.size)

        with report_progress(self._progress, tell):
            if loading.lane.lane != SPARK:
                tasks = tasks_of(self.context, loading.target, reading, loading.plan)
                return cast("ArrowStage", loading.target.sink).stage_arrow(loading.job, tasks)
            if frame is None:
                raise RunFailed("the source was not read")
            return loading.target.sink.stage(loading.job, prepared_frame(self.context, loading.target, frame, mark))


def record_refusal(context: RunContext, run_id: str, started_at: datetime, error: FlowError) -> None:
    """Record in the history of every target that the run failed before it could be planned."""
    inside = TargetSource(PathChoice(CROSS_DB, "not planned"))
    for target in context.loads:
        own = str(uuid.uuid4()) if context.spec.fan_out else run_id
        target.sink.refused(job_of(context.spec, target, inside, run_id=own, started_at=started_at), mask(error.what))


def job_of(
    spec: PipelineSpec, target: TargetContext, inside: TargetSource, *, run_id: str, started_at: datetime
) -> WriteJob:
    """Return the parameters of one load for its sink."""
    return WriteJob(
        run_id=run_id,
        pipeline=spec.name,
        writer=spec.writer(target.load),
        shape=target.shape,
        strategy=target.load.strategy,
        started_at=started_at,
        path=inside.choice.path,
        mode=target.load.mode,
        incremental=spec.incremental,
        max_delete_fraction=target.load.max_delete_fraction,
        write_options=target.load.write_options,
    )


def target_result(loading: TargetRun, reading: PlannedSource) -> TargetResult:
    """Return the result of the run for one target."""
    target = loading.target
    counts = loading.result.counts if loading.result else Counts()
    notes = loading.notes
    if counts.null_watermarks:
        notes += (
            (f"{counts.null_watermarks} row(s) have no watermark: NULL in {loading.job.incremental.column}",)
            if loading.job.incremental
            else ()
        )
    return TargetResult(
        table=target.load.table.qualified,
        connection=str(target.connection.name),
        mode=loading.job.strategy.mode,
        path=loading.inside.choice.path,
        lane=loading.lane.lane,
        status="failed" if loading.error else "success",
        rows_read=counts.read,
        rows_inserted=counts.inserted,
        rows_updated=counts.updated,
        rows_unchanged=counts.unchanged,
        rows_closed=counts.closed,
        rows_deleted=counts.deleted,
        watermark=loading.result.watermark if loading.result else None,
        seconds=round(time.monotonic() - loading.started, 3),
        run_id=loading.result.run_id if loading.result else loading.job.run_id,
        error=mask(loading.error.what) if loading.error else None,
        notes=notes,
        source_kind=reading.kind,
        target_kind=target.backend.name,
        path_reason=loading.inside.choice.reason,
        lane_reason=loading.lane.reason,
        bytes_staged=loading.staged[0],
        bytes_of=loading.staged[1],
        load_seconds=round(loading.load_seconds, 3) if loading.load_seconds is not None else None,
        quality=loading.quality.to_dict() if loading.quality is not None else None,
    )


def close_quietly(stack: ExitStack) -> None:
    """Close the run's resources; errors are only logged, because the run's outcome is already known."""
    try:
        stack.close()
    except Exception as exc:  # for example a lost server or a stopped session
        import logging

        logging.getLogger(__name__).debug("closing: %s", mask(str(exc)))
