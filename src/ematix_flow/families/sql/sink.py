"""The write path of every database: begin, stage, publish in one transaction, settle."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ematix_flow.contract.cdc import GATE
from ematix_flow.contract.checks import CheckResult
from ematix_flow.contract.lane import ArrowStage
from ematix_flow.contract.write import Commit, Counts, Stage, WriteJob, WriteResult, WriteSession
from ematix_flow.declare.quality.checks import Check
from ematix_flow.declare.strategy import Append, Changes, Merge, Scd2, Truncate
from ematix_flow.families.expectations import StagedRows, run_checks
from ematix_flow.families.sql.append import append, truncate
from ematix_flow.families.sql.cdc import apply_changes
from ematix_flow.families.sql.ddl import SqlDdl
from ematix_flow.families.sql.dialect import SqlDialect
from ematix_flow.families.sql.integrity import check_rows
from ematix_flow.families.sql.merge import merge
from ematix_flow.families.sql.metadata_tables import MetadataTables
from ematix_flow.families.sql.observations import ensure_observations
from ematix_flow.families.sql.scd2 import scd2
from ematix_flow.families.sql.scd2_events import scd2_events
from ematix_flow.families.sql.session import SqlSession
from ematix_flow.families.sql.statements import JobSql
from ematix_flow.foundation.errors import FlowError, LeaseHeld, MissingTable
from ematix_flow.sql.expressions.check_conditions import newest_value

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class _RolledBack(Exception):
    """Rolls back the transaction of a dry run and carries its result."""

    def __init__(self, result: WriteResult) -> None:
        self.result = result


class SqlSink(ArrowStage):
    """A database as a target; a backend implements how to connect and how to fill a stage."""

    dialect: SqlDialect

    @abstractmethod
    def connect(self) -> SqlSession:
        """Return a new session."""

    def keep_session(self) -> None:
        """Use one session from now on where the backend supports it, until `release`."""

    def release_session(self) -> None:
        """Close the session that `hold` keeps open."""

    @abstractmethod
    def ddl(self) -> SqlDdl:
        """Return the object that inspects and changes tables of this database."""

    def arrow_obstacle(self, job: WriteJob) -> str | None:
        """Return the reason why tasks cannot write Arrow batches; None where every load can use them."""
        return None

    def stage(self, job: WriteJob, frame: DataFrame) -> Stage:
        """Write the frame into a new stage, with the column types of the target."""
        return self.stage_arrow(job, frame)

    @abstractmethod
    def drop_stage(self, session: SqlSession, run_id: str) -> None:
        """Drop the stage of a run if there is one."""

    def open_stage(self, session: SqlSession, stage: Stage) -> str:
        """Make the stage readable in this session; return its name there."""
        return stage.relation

    def begin(self, job: WriteJob) -> WriteSession:
        """Issue the commit token; settle dead runs: mark published ones as successful and others as failed."""
        if job.batch is not None:
            return self._begin_batch(job, job.batch)
        with self.connect() as session:
            meta = MetadataTables(session, self.dialect)
            meta.ensure()
            recovered = None if job.dry_run else self._settle_interrupted(session, meta, job)
            if job.once and not job.dry_run:
                recovered = recovered or meta.published_by(job.writer)
            commit = meta.next_commit(job.writer)
            watermark = meta.watermark(job.writer, job.incremental.column) if job.incremental else None
            if not job.dry_run:
                meta.start(job)
        return WriteSession(commit, watermark, recovered)

    def _begin_batch(self, job: WriteJob, batch: int) -> WriteSession:
        """Return the token of a micro-batch, which its number determines; drop the stage of an earlier attempt."""
        with self.connect() as session:
            meta = MetadataTables(session, self.dialect)
            meta.ensure()
            commit, last = Commit(job.writer, batch + 1), meta.published_by(job.writer)
            if last is not None and last.commit.sequence >= commit.sequence:
                return WriteSession(commit, recovered=last)
            self.drop_stage(session, job.run_id)
        return WriteSession(commit)

    def last_sequence(self, writer: str) -> int | None:
        """Return the sequence of a writer's last commit, None when it never published."""
        with self.connect() as session:
            try:
                last = MetadataTables(session, self.dialect).published_by(writer)
            except MissingTable:
                return None
        return last.commit.sequence if last is not None else None

    def last_sequences(self, schema: str, table: str, *, prefix: str, suffix: str) -> dict[str, int]:
        """Return the last sequence of every writer whose name begins and ends so; a suffix names the table."""
        with self.connect() as session:
            try:
                return MetadataTables(session, self.dialect).last_sequences(prefix, suffix)
            except MissingTable:
                return {}

    def _settle_interrupted(self, session: SqlSession, meta: MetadataTables, job: WriteJob) -> WriteResult | None:
        recovered: WriteResult | None = None
        for run_id in meta.unfinished(job):
            published = meta.published(run_id)
            if published is not None:
                meta.finish(run_id, counts=published.counts, error=None)
                recovered = published
            else:
                meta.finish(run_id, counts=None, error="the process ended before the load was published")
            self.drop_stage(session, run_id)
        return recovered

    def check(self, job: WriteJob, stage: Stage, checks: Sequence[Check]) -> list[CheckResult]:
        """Run the checks on the stage in the database, before the transaction that locks the target."""
        with self.connect() as session:
            job_sql, name = JobSql(self.dialect, job, self.open_stage(session, stage)), self.dialect.name

            def newest_there(column: str) -> Any:
                if job.pending:  # a dry run has neither created nor changed the table
                    return None
                return session.scalar(f"SELECT {newest_value(job_sql.t(column), name)} FROM {job_sql.target}")

            return run_checks(StagedRows(job, session.rows, name, job_sql.stage, newest_there), checks)

    def publish(self, job: WriteJob, stage: Stage, write_session: WriteSession) -> WriteResult:
        """Publish rows, token and watermark in one transaction; raise `LeaseHeld` if the token is already published."""
        if job.pending and not self._can_dry_run(job):
            return self._checked(job, stage, write_session)
        changes = self.ddl().statements(job.shape, job.pending) if job.pending else []
        if isinstance(job.strategy, Scd2) and job.strategy.event_time:
            self.ensure_observations(job)
        with self.connect() as session:
            meta = MetadataTables(session, self.dialect)
            if isinstance(job.strategy, Changes):
                meta.ensure_gate()
            job_sql = JobSql(self.dialect, job, self.open_stage(session, stage))
            try:
                with session.transaction():
                    if job.fence is not None:
                        meta.check_fence(job.fence)
                    if meta.is_published(write_session.commit):
                        raise LeaseHeld(
                            f"another run published {write_session.commit} meanwhile; nothing was loaded twice",
                            hint="run it again",
                        )
                    for change in changes:  # of a dry run: they are rolled back with the transaction
                        session.execute(change)
                    result = self._write(session, meta, job_sql, write_session)
                    if job.dry_run:
                        raise _RolledBack(result)
            except _RolledBack as rolled_back:
                return rolled_back.result
            return result

    def _can_dry_run(self, job: WriteJob) -> bool:
        """Return whether a dry run can execute the pending DDL: only if it rolls back and no second table changes."""
        return self.dialect.changes_roll_back and not (isinstance(job.strategy, Scd2) and job.strategy.event_time)

    def _checked(self, job: WriteJob, stage: Stage, write_session: WriteSession) -> WriteResult:
        """Return the result of a dry run that only checks the staged rows."""
        with self.connect() as session:
            staged = check_rows(session, JobSql(self.dialect, job, self.open_stage(session, stage)))
        return WriteResult(job.run_id, write_session.commit, Counts(read=staged), counted=False)

    def _write(
        self, session: SqlSession, meta: MetadataTables, job_sql: JobSql, write_session: WriteSession
    ) -> WriteResult:
        job = job_sql.job
        staged = check_rows(session, job_sql)
        for setting in self.dialect.for_a_publish(staged):
            session.execute(setting)
        counts = self._apply(session, meta, job_sql, write_session, staged)
        watermark = write_session.watermark
        if job.incremental is not None:
            value, nulls = self._new_watermark(session, job_sql, job.incremental.column)
            counts = Counts(**{**counts.__dict__, "null_watermarks": nulls})
            watermark = later_watermark(value, watermark, job_sql.column(job.incremental.column).type.kind)
            if watermark is not None:
                meta.advance_watermark(job.writer, job.incremental.column, watermark)
        result = WriteResult(job.run_id, write_session.commit, counts, watermark)
        meta.record_commit(result)
        if job.batch is not None:
            meta.delete_earlier_commits(result.commit)
        return result

    def _apply(
        self, session: SqlSession, meta: MetadataTables, job_sql: JobSql, write_session: WriteSession, staged: int
    ) -> Counts:
        deleted = self._replace_table(session, job_sql)
        if deleted is not None:
            return Counts(read=staged, inserted=staged, deleted=deleted)
        match job_sql.job.strategy:
            case Append():
                return append(session, job_sql, staged=staged, watermark=write_session.watermark)
            case Truncate():
                return truncate(session, job_sql, staged=staged)
            case Merge() as strategy:
                return merge(session, job_sql, strategy, staged=staged)
            case Changes() as strategy:
                return apply_changes(session, job_sql, strategy, cdc_watermarks=meta.name(GATE), staged=staged)
            case Scd2(event_time=None) as strategy:
                return scd2(session, job_sql, strategy, staged=staged)
            case Scd2() as strategy:
                return scd2_events(session, job_sql, strategy, staged=staged)

    def _replace_table(self, session: SqlSession, job_sql: JobSql) -> int | None:
        """Replace the target by the stage; return the number of rows removed, None where the stage must be copied."""
        return None

    def _new_watermark(self, session: SqlSession, job_sql: JobSql, column: str) -> tuple[str | None, int]:
        text = self.dialect.watermark_text(f"MAX({job_sql.s(column)})", job_sql.column(column).type)
        value, nulls = session.rows(
            f"SELECT {text}, SUM(CASE WHEN {job_sql.s(column)} IS NULL THEN 1 ELSE 0 END) FROM {job_sql.stage} AS s"
        )[0]
        return (None if value is None else str(value)), int(nulls or 0)

    def ensure_observations(self, job: WriteJob) -> None:
        """Create or alter the observations table to match the target's columns."""
        ensure_observations(self.ddl(), job)

    def settle(
        self, job: WriteJob, write_session: WriteSession, result: WriteResult | None, error: str | None
    ) -> WriteResult | None:
        """Finish the history row and drop the stage; return the published result. Database errors are ignored."""
        with suppress(FlowError), self.connect() as session:
            self.drop_stage(session, job.run_id)
            if job.dry_run or job.batch is not None:
                return result
            meta = MetadataTables(session, self.dialect)
            if result is None:
                result = meta.published(job.run_id)
                error = error if result is None else None
            meta.finish(job.run_id, counts=result.counts if result else None, error=error)
        return result

    def has_database(self) -> bool:
        """Return False where connecting would create the database."""
        return True

    def refused(self, job: WriteJob, error: str) -> None:
        """Insert a history row of a run that failed before the target was opened, if the database exists."""
        if not self.has_database():
            return
        with suppress(FlowError), self.connect() as session:
            meta = MetadataTables(session, self.dialect)
            meta.ensure()
            meta.start(job)
            meta.finish(job.run_id, counts=None, error=error)

    def record_transform(self, run_id: str, *, parent: str, pipeline: str, step: str, error: str | None,
                         metrics: str | None, started_at: datetime) -> None:  # fmt: skip
        """Insert a history row for one post-load transform; a failure to write it is ignored."""
        with suppress(FlowError), self.connect() as session:
            MetadataTables(session, self.dialect).record_transform(
                run_id, parent=parent, pipeline=pipeline, step=step, error=error, metrics=metrics, started_at=started_at
            )


def later_watermark(value: str | None, known: str | None, kind: str) -> str | None:
    """Return the later of two watermarks: with a lookback a run may read only older rows."""
    if value is None or known is None:
        return value or known
    return value if is_later_watermark(value, known, kind) else known


def earlier_watermark(value: str | None, known: str | None, kind: str) -> str | None:
    """Return the earlier of two watermarks."""
    if value is None or known is None:
        return value or known
    return known if is_later_watermark(value, known, kind) else value


def is_later_watermark(one: str, other: str, kind: str) -> bool:
    """Return whether watermark `one` is equal to or after `other`, compared as values of a column type `kind`."""
    if kind in ("small_int", "integer", "big_int", "numeric", "float", "double"):
        from decimal import Decimal

        return Decimal(one) >= Decimal(other)
    return one >= other
