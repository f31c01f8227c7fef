"""The execution of a batch run: ensure, open, read, stage, publish, settle."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ematix_flow.contract.ddl import CreateTable
from ematix_flow.contract.read import ReadPlan
from ematix_flow.contract.write import Counts, Opening, Stage, WriteJob, WriteResult
from ematix_flow.declare.engine import DISTRIBUTED
from ematix_flow.declare.pipeline import PipelineSpec
from ematix_flow.declare.strategy import Append
from ematix_flow.engine import quality, spark_errors
from ematix_flow.engine.choice import choose as choose_engine
from ematix_flow.engine.context import LoadContext, RunContext
from ematix_flow.engine.kept import kept
from ematix_flow.engine.lanes import lane_of, tasks_of
from ematix_flow.engine.quality import QualityOutcome
from ematix_flow.engine.reading import (
    LoadReading,
    Reading,
    choose,
    earliest,
    prepared_frame,
    restricted_plan,
    restricted_query,
    source_frame,
)
from ematix_flow.engine.result import Event, TargetResult
from ematix_flow.engine.steps import StepClock
from ematix_flow.engine.ticker import ticking
from ematix_flow.families.progress import STAGED, Counted, counted, file_bytes, watching
from ematix_flow.foundation import fault
from ematix_flow.foundation.errors import FlowError, LeaseLost, RunCancelled, RunFailed
from ematix_flow.foundation.redact import mask
from ematix_flow.planning.drift import plan_ddl, settle_drift
from ematix_flow.planning.lanes import ARROW, INSIDE, SPARK, LaneChoice
from ematix_flow.planning.paths import CROSS_DB, PathChoice

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass
class Loading:
    """The state of one target during the run."""

    target: LoadContext
    job: WriteJob
    inside: LoadReading
    lane: LaneChoice
    plan: ReadPlan | None = None
    """The read restricted by the watermark, for the Arrow lane."""
    opening: Opening | None = None
    notes: tuple[str, ...] = ()
    started: float = 0.0
    creates: bool = False
    error: FlowError | None = None
    result: WriteResult | None = None
    staged: tuple[int | None, str] = (None, "")
    """Bytes written to the stage, and the kind of measurement."""
    load_seconds: float | None = None
    quality: QualityOutcome | None = None


class Walk:
    """The execution of one run, target by target."""

    def __init__(self, context: RunContext, *, run_id: str, started_at: datetime, clock: StepClock,
                 accept_deletes: int | None = None, rehearsal: bool = False) -> None:  # fmt: skip
        self.context = context
        self.run_id = run_id
        self.started_at = started_at
        self.clock = clock
        self.accept_deletes = accept_deletes
        self.rehearsal = rehearsal
        self.step = "plan"
        self._progress: Path | None = None

    def load(self, reading: Reading) -> list[Loading]:
        """Load every target of the run; a failing one stops the run unless the pipeline continues on failure."""
        loadings = self._planned(reading)
        for loading in loadings:
            if loading.error is None:
                self._attempt(loading, lambda item: self._open(item, reading))
        alive = [item for item in loadings if item.error is None]
        with watching() as self._progress:
            frame = self._shared_frame(reading, alive)
            for loading in alive:
                self._attempt(loading, lambda item: self._write(item, reading, frame))
        return loadings

    def _attempt(self, loading: Loading, work: Callable[[Loading], None]) -> Loading:
        try:
            work(loading)
        except FlowError as exc:
            self._failed(loading, exc)
        except Exception as exc:
            self._failed(loading, spark_errors.translate(exc), cause=exc)
        return loading

    def _failed(self, loading: Loading, error: FlowError, cause: Exception | None = None) -> None:
        error.at(self.context.spec.where)
        error.facts.setdefault("step", self.step)
        if loading.opening is not None:
            loading.result = loading.target.sink.settle(loading.job, loading.opening, None, mask(error.what))
            if loading.result is not None and not isinstance(error, (RunCancelled, LeaseLost)):
                loading.notes += (f"published, although an error followed: {mask(error.what)}",)
                return
        elif not self.rehearsal:
            loading.target.sink.refused(loading.job, mask(error.what))
        loading.error = error
        if not (self.context.spec.fan_out and self.context.spec.continue_on_failure):
            raise error from cause

    def _say(self, step: str, text: str = "", **more: Any) -> None:
        self.step = step
        self.clock(Event(self.context.spec.name, step, text, **more))

    def _planned(self, reading: Reading) -> list[Loading]:
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

    def _unplanned(self, target: LoadContext) -> Loading:
        run_id = str(uuid.uuid4()) if self.context.spec.fan_out else self.run_id
        inside = LoadReading(PathChoice(CROSS_DB, "not planned yet"))
        planned = job_of(self.context.spec, target, inside, run_id=run_id, started_at=self.started_at)
        job = replace(planned, accept_deletes=self.accept_deletes, rehearsal=self.rehearsal)
        if self.context.stream:  # a window has its own commit token: any process loads it only once
            table = target.load.table.qualified
            job = replace(job, writer=f"{job.pipeline}::{table}@{self.context.stream}", once=True)
        return Loading(target, job, inside, LaneChoice(SPARK, "not planned yet"), started=time.monotonic())

    def _plan(self, loading: Loading, reading: Reading) -> None:
        loading.inside = choose(self.context, loading.target, reading)
        loading.job = replace(loading.job, path=loading.inside.choice.path)
        loading.lane = lane_of(self.context, loading.target, loading.job, reading, loading.inside)
        self.context.in_arrow = loading.lane.lane == ARROW

    def _open(self, loading: Loading, reading: Reading) -> None:
        """Bring the table to its shape, then get the commit token and the watermark."""
        target, spec = loading.target, self.context.spec
        self._say("ensure", target.load.table.qualified)
        if target.backend.dialect == "spark" and loading.lane.lane != INSIDE:
            self.context.spark()
        plan = plan_ddl(target.shape, target.ddl.inspect(target.shape), target.ddl.stored_type)
        steps, warned = settle_drift(
            plan, spec.on_drift, table=target.load.table.qualified, where=target.load.table.where
        )
        loading.creates = any(isinstance(step, CreateTable) for step in steps)
        loading.notes = tuple(str(step) for step in steps) + tuple(f"drift: {text}" for text in warned)
        if self.rehearsal:
            loading.job = replace(loading.job, pending=steps)
        else:
            target.ddl.apply(target.shape, steps)
        loading.opening = target.sink.begin(loading.job)
        mark = loading.opening.watermark
        if mark is not None and loading.inside.query is None and loading.lane.lane != SPARK:
            loading.plan = restricted_plan(self.context, reading, mark)
            loading.lane = lane_of(self.context, target, loading.job, reading, loading.inside, plan=loading.plan)

    def _shared_frame(self, reading: Reading, loadings: list[Loading]) -> DataFrame | None:
        """Return the source as one dataframe that is read once for all targets, None if no target needs Spark rows."""
        if not any(self._needs_rows(item) and item.lane.lane == SPARK for item in loadings):
            return None
        marks = [item.opening.watermark if item.opening else None for item in loadings if self._needs_rows(item)]
        start = earliest(marks, self.context.spec)
        self._say("read", reading.kind, total=reading.plan.estimated_rows if reading.plan else None)
        try:
            frame = source_frame(self.context, reading, start)
            return kept(frame, self.context.open_until) if len(loadings) > 1 else frame
        except FlowError as exc:
            raise self._all_failed(loadings, exc) from exc
        except Exception as exc:
            raise self._all_failed(loadings, spark_errors.translate(exc)) from exc

    def _all_failed(self, loadings: list[Loading], error: FlowError) -> FlowError:
        error.at(self.context.spec.where)
        error.facts.setdefault("step", "read")
        for loading in loadings:
            if loading.opening is not None:
                loading.target.sink.settle(loading.job, loading.opening, None, mask(error.what))
        return error

    def _needs_rows(self, loading: Loading) -> bool:
        return not self._is_recovered(loading)

    def _is_recovered(self, loading: Loading) -> bool:
        """Return whether a crashed run already published this plain append or window; it is not loaded again."""
        opening, job = loading.opening, loading.job
        if job.once and loading.creates:  # the table was dropped, and the window with it
            return False
        plain = job.once or (isinstance(job.strategy, Append) and job.incremental is None)
        return opening is not None and opening.recovered is not None and plain

    def _write(self, loading: Loading, reading: Reading, frame: DataFrame | None) -> None:
        opening = loading.opening
        if opening is None:
            raise RunFailed("the target was not opened")
        if opening.recovered is not None and self._is_recovered(loading):
            loading.result = opening.recovered
            loading.notes += (
                f"already published by run {opening.recovered.run_id}, which died before it could say so",
            )
            loading.target.sink.settle(loading.job, opening, replace(opening.recovered, counts=Counts()), None)
            return
        fault.point("before_stage")
        self._say("stage", loading.target.load.table.qualified)
        stage = self._measured(loading, lambda: self._stage(loading, reading, frame))
        self._check(loading, stage)
        self._say("publish", str(opening.commit), rows=stage.rows)
        fault.point("before_publish")
        if self.rehearsal and loading.creates:  # the table does not exist yet: every row would be new
            counts = Counts(read=stage.rows, inserted=stage.rows)
            loading.result = WriteResult(loading.job.run_id, opening.commit, counts)
        else:
            loading.result = loading.target.sink.publish(loading.job, stage, opening)
            fault.point("after_publish")
        if not loading.result.counted:
            loading.notes += ("what will be inserted and updated is known once the table has changed",)
        self._say("settle")
        loading.target.sink.settle(loading.job, opening, loading.result, None)

    def _check(self, loading: Loading, stage: Stage) -> None:
        """Run the declared checks on the stage; raise if the policy forbids publishing it."""
        checks = loading.target.load.checks
        if not checks:
            return
        self._say("check", loading.target.load.table.qualified, rows=stage.rows)
        spec = self.context.spec
        job = replace(loading.job, on_cluster=choose_engine(spec.engine).engine == DISTRIBUTED)
        loading.quality = quality.examine(spec.name, spec.quality, loading.target, job, stage)
        loading.notes += quality.notes(loading.quality)
        quality.obey(loading.quality, checks)

    def _measured(self, loading: Loading, fill: Callable[[], Stage]) -> Stage:
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

    def _staged_so_far(self) -> Counted:
        return counted(self._progress, STAGED) if self._progress is not None else Counted()

    def _stage(self, loading: Loading, reading: Reading, frame: DataFrame | None) -> Stage:
        mark = loading.opening.watermark if loading.opening else None
        incremental = self.context.spec.incremental
        if loading.inside.query is not None:
            query = loading.inside.query
            if incremental is not None:
                query = restricted_query(loading.target, reading, loading.inside, incremental, mark)
            stage: Stage = loading.target.sink.stage_query(loading.job, query)  # type: ignore[attr-defined]
            return stage
        table, total = loading.target.load.table.qualified, reading.plan.estimated_rows if reading.plan else None

        def tell(so_far: Counted) -> None:
            self._say("stage", table, rows=so_far.rows or None, total=total, bytes_moved=so_far.size)

        with ticking(self._progress, tell):
            if loading.lane.lane != SPARK:
                tasks = tasks_of(self.context, loading.target, reading, loading.plan)
                sink: Any = loading.target.sink
                staged: Stage = sink.stage_arrow(loading.job, tasks)
                return staged
            if frame is None:
                raise RunFailed("the source was not read")
            return loading.target.sink.stage(loading.job, prepared_frame(self.context, loading.target, frame, mark))


def refuse(context: RunContext, run_id: str, started_at: datetime, error: FlowError) -> None:
    """Record in the history of every target that the run failed before it could be planned."""
    inside = LoadReading(PathChoice(CROSS_DB, "not planned"))
    for target in context.loads:
        own = str(uuid.uuid4()) if context.spec.fan_out else run_id
        target.sink.refused(job_of(context.spec, target, inside, run_id=own, started_at=started_at), mask(error.what))


def job_of(
    spec: PipelineSpec, target: LoadContext, inside: LoadReading, *, run_id: str, started_at: datetime
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


def outcome(loading: Loading, reading: Reading) -> TargetResult:
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


def close(stack: ExitStack) -> None:
    """Close the run's resources; errors are only logged, because the run's outcome is already known."""
    try:
        stack.close()
    except Exception as exc:  # for example a lost server or a stopped session
        import logging

        logging.getLogger(__name__).debug("closing: %s", mask(str(exc)))
