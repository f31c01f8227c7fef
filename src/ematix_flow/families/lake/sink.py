"""The write path of every lake: begin, stage, publish by one commit of the table, settle.

The table's own commit decides whether a load was published. The state manifest only records where to look: a run that
died after its commit is completed by the next run, the traces of one that died before it are deleted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from ematix_flow.contract.checks import CheckResult
from ematix_flow.contract.write import Commit, Counts, Stage, WriteJob, WriteResult, WriteSession
from ematix_flow.dataplane.spark_session import active_session, exact_settings
from ematix_flow.declare.quality.checks import Check
from ematix_flow.families.lake.errors import translated_errors
from ematix_flow.families.lake.expectations import (
    can_check_in_duckdb,
    newest_in,
    staged_rows_in_duckdb,
    staged_rows_in_spark,
)
from ematix_flow.families.lake.integrity import StageFacts
from ematix_flow.families.lake.state import LakeLoad, LakeState, WriterState
from ematix_flow.families.sql.sink import later_watermark
from ematix_flow.foundation.errors import FlowError, LeaseHeld
from ematix_flow.storage.paths import HeldLock, LakePath, LakeRoot, remove

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FACTS = "facts.json"


class LakeSink(ABC):
    """A lake as a target; a backend implements how a table is staged and changed and how its commits are looked up."""

    lake_root: LakeRoot
    hold: HeldLock | None = None
    """The table's lock, while a load is published."""

    @property
    def state(self) -> LakeState:
        """Return the state store of the lake."""
        return LakeState(self.lake_root)

    @abstractmethod
    def stage(self, job: WriteJob, frame: DataFrame) -> Stage:
        """Write the frame into a stage, which is not visible to readers."""

    @abstractmethod
    def staged(self, job: WriteJob) -> DataFrame:
        """Return the rows of the stage, in the declared types."""

    @abstractmethod
    def published(self, job: WriteJob) -> DataFrame | None:
        """Return the rows of the existing table, None when it does not exist."""

    @abstractmethod
    def staged_parquet(self, job: WriteJob) -> Sequence[Path]:
        """Return the files of the stage, none where they are not Parquet."""

    def newest_published(self, job: WriteJob, column: str) -> Any:
        """Return the newest value of a column in the existing table, as text; None when there is none."""
        with translated_errors("asking the table"), exact_settings(active_session()):
            return newest_in(self.published(job), column)

    @abstractmethod
    def dry_run(self, job: WriteJob, facts: StageFacts, write_session: WriteSession) -> Counts:
        """Return the counts that a commit would have; the table is not changed."""

    @abstractmethod
    def commit(self, job: WriteJob, facts: StageFacts, write_session: WriteSession, load: LakeLoad) -> LakeLoad:
        """Change the table by one commit that contains the load's token; return the announced load."""

    @abstractmethod
    def find_load(self, writer: str, load: LakeLoad) -> LakeLoad | None:
        """Return the load as recorded in the table's commits, None when it was never committed."""

    @abstractmethod
    def last_load(self, job: WriteJob) -> LakeLoad | None:
        """Return the newest load of a writer recorded in the table itself, for a lake whose state is lost."""

    @abstractmethod
    def discard_load(self, load: LakeLoad) -> None:
        """Delete what an uncommitted load left behind."""

    @abstractmethod
    def finish_load(self, load: LakeLoad) -> None:
        """Do the work that follows a commit; it must be idempotent."""

    def stage_folder(self, job: WriteJob) -> LakePath:
        """Return the stage folder of this run and table."""
        return self.stage_of(job.run_id, job.shape.table.schema, job.shape.table.name)

    def stage_of(self, run_id: str, schema: str, table: str) -> LakePath:
        """Return the stage folder of any run."""
        return self.lake_root.stage(run_id, f"{schema}.{table}")

    def begin(self, job: WriteJob) -> WriteSession:
        """Issue the commit token; settle the previous run if it died."""
        state = self.state.read(job.writer) or WriterState(last=self.last_load(job))
        if job.dry_run:
            return _opening(job, state, None)
        state, recovered = self._settle_interrupted(job, state)
        if job.once and recovered is None and state.last is not None:
            recovered = state.last.result(job.writer)
        write_session = _opening(job, state, recovered)
        if write_session.recovered is not None and job.batch is not None:
            return write_session
        table = job.shape.declared
        pending = LakeLoad(
            job.run_id, write_session.commit.sequence, table.schema, table.name, job.started_at.isoformat()
        )
        self.state.write(job.writer, replace(state, pending=pending))
        if job.batch is None:
            self.state.started(job)
        return write_session

    def last_sequence(self, writer: str) -> int | None:
        """Return the sequence of a writer's last commit, None when it never published."""
        state = self.state.read(writer)
        if state is None:
            return None
        # An announced load may have been committed by a process that died before it recorded that: the table knows.
        found = self._published(writer, state.pending) if state.pending is not None else None
        return max(state.sequence, found.sequence if found is not None else 0) or None

    def _settle_interrupted(self, job: WriteJob, state: WriterState) -> tuple[WriterState, WriteResult | None]:
        dead = state.pending
        if dead is None:
            return state, None
        published = self._published(job.writer, dead)
        if published is None:
            self.discard_load(dead)
            self._drop_stage(dead.run_id, dead.schema, dead.table)
            error = "the process ended before the load was published"
            self._finished(job, dead.run_id, None, error)
            return replace(state, pending=None), None
        self.finish_load(published)
        self._drop_stage(dead.run_id, dead.schema, dead.table)
        result = published.result(job.writer)
        self._finished(job, dead.run_id, result.counts, None)
        return replace(state, pending=published).settled(), result

    def _finished(self, job: WriteJob, run_id: str, counts: Counts | None, error: str | None) -> None:
        """Append a history line, except for micro-batches."""
        if job.batch is None:
            self.state.finished(run_id, job.writer, counts=counts, error=error)

    def check(self, job: WriteJob, stage: Stage, checks: Sequence[Check]) -> list[CheckResult]:
        """Check the staged files: with DuckDB in this process, or in Spark, as when other machines wrote them."""

        def newest_there(column: str) -> Any:
            return self.newest_published(job, column)

        files = () if job.on_cluster or not can_check_in_duckdb() else self.staged_parquet(job)
        if files:
            return staged_rows_in_duckdb(job, checks, files, newest_there)
        with translated_errors("checking the rows"), exact_settings(active_session()):
            return staged_rows_in_spark(job, checks, self.staged(job), newest_there)

    def publish(self, job: WriteJob, stage: Stage, write_session: WriteSession) -> WriteResult:
        """Publish by one commit of the table; raise `LeaseHeld` if the token is already published."""
        with self.lake_root.locked(job.shape.declared.qualified) as self.hold:
            if job.fence is not None:
                self.state.check_fence(job.fence)
            state = self.state.read(job.writer) or WriterState()
            if state.sequence >= write_session.commit.sequence:
                raise already_taken(write_session)
            facts = StageFacts.read(self.stage_folder(job) / FACTS)
            if job.dry_run:
                counts = _complete(self.dry_run(job, facts, write_session), facts)
                return WriteResult(job.run_id, write_session.commit, counts, self._watermark(job, facts, write_session))
            load = self.commit(job, facts, write_session, self._load(job, facts, write_session))
            self.state.write(job.writer, replace(state, pending=replace(load, published=True)))
        return WriteResult(job.run_id, write_session.commit, Counts(**(load.counts or {})), load.watermark)

    def announce(
        self, job: WriteJob, load: LakeLoad, counts: Counts, *, facts: StageFacts, after: Mapping[str, Any] | None
    ) -> LakeLoad:
        """Record the load before its commit, so that a later run can complete it; raise if the lock is lost."""
        if self.hold is not None:
            self.hold.check()
        announced = replace(load, counts=asdict(_complete(counts, facts)), after=after)
        state = self.state.read(job.writer) or WriterState()
        self.state.write(job.writer, replace(state, pending=announced))
        return announced

    def _load(self, job: WriteJob, facts: StageFacts, write_session: WriteSession) -> LakeLoad:
        table = job.shape.declared
        return LakeLoad(
            job.run_id,
            write_session.commit.sequence,
            table.schema,
            table.name,
            job.started_at.isoformat(),
            watermark=self._watermark(job, facts, write_session),
            column=job.incremental.column if job.incremental else None,
        )

    def _watermark(self, job: WriteJob, facts: StageFacts, write_session: WriteSession) -> str | None:
        if job.incremental is None:
            return write_session.watermark
        return later_watermark(
            facts.watermark, write_session.watermark, job.shape.declared.column(job.incremental.column).type.kind
        )

    def settle(
        self, job: WriteJob, write_session: WriteSession, result: WriteResult | None, error: str | None
    ) -> WriteResult | None:
        """Record the published load as the last one and drop the stage; return its result. FlowErrors are ignored."""
        with suppress(FlowError):
            if not job.dry_run:
                result = self._settle(job, result, error)
            self._drop_stage(job.run_id, job.shape.table.schema, job.shape.table.name)
        return result

    def _settle(self, job: WriteJob, result: WriteResult | None, error: str | None) -> WriteResult | None:
        state = self.state.read(job.writer) or WriterState()
        mine = state.pending
        if mine is not None and mine.run_id == job.run_id:
            published = self._published(job.writer, mine)
            if published is None:
                self.discard_load(mine)
            else:
                self.finish_load(published)
                state = replace(state, pending=published).settled()
                if result is None:
                    result, error = published.result(job.writer), None
            self.state.write(job.writer, replace(state, pending=None))
        self._finished(job, job.run_id, result.counts if result else None, error)
        return result

    def _published(self, writer: str, load: LakeLoad) -> LakeLoad | None:
        """Return the load if the table has it: a commit may have succeeded although an error followed it."""
        if load.published or load.counts is None:  # a load without counts was never announced
            return load if load.published else None
        load_found = self.find_load(writer, load)
        return replace(load_found, after=load.after) if load_found is not None else None

    def refused(self, job: WriteJob, error: str) -> None:
        """Append a history line of a run that failed before the target was opened, if the lake exists."""
        with suppress(FlowError):
            if not self.state.has_history():  # a folder without run history is left unchanged
                return
            self.state.started(job)
            self.state.finished(job.run_id, job.writer, counts=None, error=error)

    def has_database(self) -> bool:
        """Return True: opening a lake creates nothing."""
        return True

    def last_sequences(self, schema: str, table: str, *, prefix: str, suffix: str) -> dict[str, int]:
        """Return the last sequences of writers with such names, from the state files beside the tables."""
        folder = self.lake_root.state()
        names = [unquote(item.name).removesuffix(".json") for item in folder.iterdir()] if folder.is_dir() else []
        wanted = (name for name in names if name.startswith(prefix) and name.endswith(suffix))
        return {name: sequence for name in wanted if (sequence := self.last_sequence(name))}

    def record_transform(self, run_id: str, *, parent: str, pipeline: str, step: str, error: str | None,
                         metrics: str | None, started_at: datetime) -> None:  # fmt: skip
        """Append a history line for one post-load transform; a failure to write it is ignored."""
        with suppress(FlowError):
            self.state.transformed(
                run_id, parent=parent, pipeline=pipeline, step=step, error=error, metrics=metrics, started_at=started_at
            )

    def _drop_stage(self, run_id: str, schema: str, table: str) -> None:
        folder = self.stage_of(run_id, schema, table)
        remove(folder)
        if not isinstance(folder, Path):  # a bucket has no empty folders
            return
        with suppress(OSError):  # stops at the first folder that is still in use
            for above in folder.parents:
                if above == self.lake_root.root:
                    break
                above.rmdir()


def _opening(job: WriteJob, state: WriterState, recovered: WriteResult | None) -> WriteSession:
    last, watermark = state.last, None
    if job.incremental is not None and last is not None and last.column == job.incremental.column:
        watermark = last.watermark
    if job.batch is not None:  # the number of a micro-batch determines its token
        done = last.result(job.writer) if last is not None and last.sequence > job.batch else None
        return WriteSession(Commit(job.writer, job.batch + 1), watermark, done)
    return WriteSession(Commit(job.writer, state.sequence + 1), watermark, recovered)


def _complete(counts: Counts, facts: StageFacts) -> Counts:
    return replace(counts, null_watermarks=facts.null_watermarks)


def already_taken(write_session: WriteSession) -> LeaseHeld:
    """Return the error for a token that another run has already published."""
    return LeaseHeld(
        f"another run published {write_session.commit} meanwhile; nothing was loaded twice", hint="run it again"
    )
