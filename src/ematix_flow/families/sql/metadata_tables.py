"""The metadata tables in the target: run history, watermarks, commits."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import datetime, timezone

from ematix_flow.contract.cdc import GATE
from ematix_flow.contract.write import Commit, Counts, Fence, WriteJob, WriteResult
from ematix_flow.declare.table import TableSpec
from ematix_flow.declare.types import UUID, BigInt, Column, String, Text, TimestampTZ
from ematix_flow.families.sql.dialect import SqlDialect
from ematix_flow.families.sql.session import SqlSession
from ematix_flow.foundation.clock import now
from ematix_flow.foundation.errors import MissingTable

_NAME = String(255)


def _table(name: str, *columns: Column) -> TableSpec:
    return TableSpec("ematix_flow", name, columns)


RUN_HISTORY = _table(
    "run_history",
    Column(UUID(), False, True, "run_id"),
    Column(_NAME, False, False, "pipeline_name"),
    Column(_NAME, True, False, "target_schema"),
    Column(_NAME, True, False, "target_table"),
    Column(_NAME, True, False, "mode"),
    Column(_NAME, True, False, "path"),
    Column(TimestampTZ(), False, False, "started_at"),
    Column(TimestampTZ(), True, False, "finished_at"),
    Column(_NAME, False, False, "status"),
    Column(BigInt(), True, False, "rows_inserted"),
    Column(Text(), True, False, "error_message"),
    Column(BigInt(), True, False, "rows_updated"),
    Column(BigInt(), True, False, "rows_unchanged"),
    Column(_NAME, True, False, "parent_run_id"),
    Column(_NAME, True, False, "step_name"),
    Column(Text(), True, False, "metrics_json"),
)
WATERMARKS = _table(
    "watermarks",
    Column(_NAME, False, True, "pipeline_name"),
    Column(_NAME, False, False, "column_name"),
    Column(Text(), True, False, "last_value"),
    Column(TimestampTZ(), False, False, "updated_at"),
)
COMMITS = _table(
    "commits",
    Column(_NAME, False, True, "writer"),
    Column(BigInt(), False, True, "sequence"),
    Column(_NAME, False, False, "run_id"),
    Column(TimestampTZ(), False, False, "committed_at"),
    Column(Text(), True, False, "outcome"),
)


class MetadataTables:
    """The metadata tables of one target, read and written through one session."""

    def __init__(self, session: SqlSession, dialect: SqlDialect) -> None:
        self.session = session
        self.d = dialect

    def ensure(self) -> None:
        """Create the missing schema and tables; the check costs one cheap query."""
        if self._present():
            return
        schema = self.d.create_schema(self.d.meta_schema)
        with self.session.creating(self.d.creation_lock):
            if schema:
                self.session.execute(schema)
            for table in (RUN_HISTORY, WATERMARKS, COMMITS):
                self.session.execute(self._creation(table))

    def ensure_gate(self) -> None:
        """Create the CDC watermark table (newest change of each key) if missing; call it outside of transactions."""
        if not self._present(GATE):
            with self.session.creating(self.d.creation_lock):
                self.session.execute(self._creation(GATE))

    def _creation(self, table: TableSpec) -> str:
        return self.d.create_table(self.name(table), table.columns, primary_key=table.primary_key)

    def _present(self, table: TableSpec = COMMITS) -> bool:
        """Return whether the table exists; raise any other error, such as a missing privilege."""
        try:
            self.session.rows(f"SELECT {self.d.quote(table.columns[0].name)} FROM {self.name(table)} WHERE 1 = 0")
        except MissingTable:
            return False
        return True

    def name(self, table: TableSpec) -> str:
        """Return the full name of a metadata table."""
        return self.d.relation(self.d.meta_schema, table.name)

    def next_commit(self, writer: str) -> Commit:
        """Return the commit token that follows the last one this writer published."""
        last = self.session.scalar(
            f"SELECT MAX({self.d.quote('sequence')}) FROM {self.name(COMMITS)} WHERE writer = {self.d.text_literal(writer)}"
        )
        return Commit(writer, int(last or 0) + 1)

    def published(self, run_id: str) -> WriteResult | None:
        """Return the result that a run published, None when it published none."""
        return self._commit_where("run_id", run_id)

    def published_by(self, writer: str) -> WriteResult | None:
        """Return the last result that a writer published, None when it never published."""
        return self._commit_where("writer", writer)

    def last_sequences(self, prefix: str, suffix: str) -> dict[str, int]:
        """Return the last sequence of every writer whose name begins and ends so."""
        sequence, pattern = self.d.quote("sequence"), self.d.text_literal(f"{prefix}%{suffix}")
        rows = self.session.rows(
            f"SELECT writer, MAX({sequence}) FROM {self.name(COMMITS)} WHERE writer LIKE {pattern} GROUP BY writer"
        )
        # In LIKE, the underscores of a name match any character.
        return {str(name): int(last) for name, last in rows if name.startswith(prefix) and name.endswith(suffix)}

    def _commit_where(self, column: str, value: str) -> WriteResult | None:
        sequence = self.d.quote("sequence")
        rows = self.session.rows(
            f"SELECT writer, {sequence}, run_id, outcome FROM {self.name(COMMITS)} "
            f"WHERE {column} = {self.d.text_literal(value)} ORDER BY {sequence} DESC"
        )
        if not rows:
            return None
        writer, sequence, run_id, outcome = rows[0]
        kept = json.loads(outcome) if outcome else {}
        return WriteResult(
            run_id=str(run_id),
            commit=Commit(writer, int(sequence)),
            counts=Counts(**kept.get("counts", {})),
            watermark=kept.get("watermark"),
            repeated=True,
        )

    def is_published(self, commit: Commit) -> bool:
        """Return whether the commit token is already in the target."""
        return bool(
            self.session.scalar(
                f"SELECT COUNT(*) FROM {self.name(COMMITS)} WHERE writer = {self.d.text_literal(commit.writer)} "
                f"AND {self.d.quote('sequence')} = {commit.sequence}"
            )
        )

    def record_commit(self, result: WriteResult) -> None:
        """Insert the commit token; call it in the transaction that writes the rows."""
        outcome = json.dumps({"counts": asdict(result.counts), "watermark": result.watermark})
        self._insert(
            COMMITS,
            writer=self.d.text_literal(result.commit.writer),
            sequence=str(result.commit.sequence),
            run_id=self.d.text_literal(result.run_id),
            committed_at=self.d.instant(now()),
            outcome=self.d.text_literal(outcome),
        )

    def delete_earlier_commits(self, commit: Commit) -> None:
        """Delete a writer's earlier commit tokens: only the last one of a stream is ever queried."""
        self.session.execute(
            f"DELETE FROM {self.name(COMMITS)} WHERE writer = {self.d.text_literal(commit.writer)} "
            f"AND {self.d.quote('sequence')} < {commit.sequence}"
        )

    def check_fence(self, fence: Fence) -> None:
        """Record the fence; raise `LeaseLost` if a higher number is recorded. Call it first in the publish transaction.

        The row is updated before it is read, so that two processes that publish at once wait for each other here.
        """
        own = f"writer = {self.d.text_literal(f'fence of {fence.name}')}"
        self.session.execute(f"UPDATE {self.name(COMMITS)} SET committed_at = {self.d.instant(now())} WHERE {own}")
        value = self.session.scalar(f"SELECT run_id FROM {self.name(COMMITS)} WHERE {own}")
        if value is None:
            self._insert(
                COMMITS,
                writer=self.d.text_literal(f"fence of {fence.name}"),
                sequence="0",
                run_id=self.d.text_literal(str(fence.number)),
                committed_at=self.d.instant(now()),
            )
        elif int(value) > fence.number:
            raise fence.lost()
        elif int(value) < fence.number:
            number = self.d.text_literal(str(fence.number))
            self.session.execute(f"UPDATE {self.name(COMMITS)} SET run_id = {number} WHERE {own}")

    def watermark(self, writer: str, column: str) -> str | None:
        """Return the last watermark of this writer on this column."""
        value = self.session.scalar(
            f"SELECT {self.d.quote('last_value')} FROM {self.name(WATERMARKS)} WHERE pipeline_name = {self.d.text_literal(writer)} "
            f"AND column_name = {self.d.text_literal(column)}"
        )
        return None if value is None else str(value)

    def advance_watermark(self, writer: str, column: str, value: str) -> None:
        """Replace the watermark; call it in the transaction that writes the rows."""
        writer_text = self.d.text_literal(writer)
        self.session.execute(f"DELETE FROM {self.name(WATERMARKS)} WHERE pipeline_name = {writer_text}")
        self._insert(
            WATERMARKS,
            pipeline_name=writer_text,
            column_name=self.d.text_literal(column),
            last_value=self.d.text_literal(value),
            updated_at=self.d.instant(now()),
        )

    def unfinished(self, job: WriteJob) -> list[str]:
        """Return the ids of this writer's runs whose status is still `running`, oldest first."""
        rows = self.session.rows(
            f"SELECT run_id FROM {self.name(RUN_HISTORY)} WHERE status = 'running' "
            f"AND pipeline_name = {self.d.text_literal(job.writer)} ORDER BY started_at"
        )
        return [str(row[0]) for row in rows]

    def start(self, job: WriteJob) -> None:
        """Insert a run history row with status `running`."""
        table = job.shape.declared
        self._insert(
            RUN_HISTORY,
            run_id=self.d.uuid(job.run_id),
            pipeline_name=self.d.text_literal(job.writer),
            target_schema=self.d.text_literal(table.schema),
            target_table=self.d.text_literal(table.name),
            mode=self.d.text_literal(job.mode or job.strategy.mode),
            path=self.d.text_literal(job.path),
            started_at=self.d.instant(job.started_at),
            status="'running'",
        )

    def finish(self, run_id: str, *, counts: Counts | None, error: str | None, at: datetime | None = None) -> None:
        """Record the end of a run: status, time, error and counts."""
        sets = {
            "finished_at": self.d.instant(at or datetime.now(timezone.utc)),
            "status": "'failed'" if error else "'success'",
            "error_message": self.d.text_literal(error) if error else "NULL",
        }
        if counts is not None:
            sets |= {
                "rows_inserted": str(counts.inserted),
                "rows_updated": str(counts.updated or counts.closed),
                "rows_unchanged": str(counts.unchanged),
                "metrics_json": self.d.text_literal(json.dumps(asdict(counts))),
            }
        assignments = ", ".join(f"{name} = {value}" for name, value in sets.items())
        self.session.execute(f"UPDATE {self.name(RUN_HISTORY)} SET {assignments} WHERE run_id = {self.d.uuid(run_id)}")

    def record_transform(self, run_id: str, *, parent: str, pipeline: str, step: str, error: str | None,
                         metrics: str | None, started_at: datetime) -> None:  # fmt: skip
        """Insert a run history row for one post-load transform."""
        self._insert(
            RUN_HISTORY,
            run_id=self.d.uuid(run_id),
            pipeline_name=self.d.text_literal(pipeline),
            mode="'transform'",
            path="'post'",
            started_at=self.d.instant(started_at),
            finished_at=self.d.instant(now()),
            status="'transform_failed'" if error else "'transform_success'",
            error_message=self.d.text_literal(error) if error else "NULL",
            parent_run_id=self.d.text_literal(parent),
            step_name=self.d.text_literal(step),
            metrics_json=self.d.text_literal(metrics) if metrics else "NULL",
        )

    def _insert(self, table: TableSpec, **values: str) -> None:
        names = self.d.names(tuple(values))
        self.session.execute(f"INSERT INTO {self.name(table)} ({names}) VALUES ({', '.join(values.values())})")
