"""The PostgreSQL sink: every task copies its rows into a stage, and the driver publishes it in one transaction."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from ematix_flow.backends.postgres import table_swap
from ematix_flow.backends.postgres.ddl import PostgresDdl
from ematix_flow.backends.postgres.dialect import PostgresDialect
from ematix_flow.backends.postgres.errors import translate
from ematix_flow.backends.postgres.session import connect, dsn
from ematix_flow.backends.postgres.table_swap import ATTEMPT, sealed_stage_name, stage_table_name
from ematix_flow.contract.backend import QueryStage
from ematix_flow.contract.lane import TaskInput
from ematix_flow.contract.write import Stage, WriteJob
from ematix_flow.dataplane.arrow_values import repeated_value, row_batch
from ematix_flow.dataplane.spark_tasks import attempt_number, in_tasks
from ematix_flow.dataplane.task_errors import carried_error_in, staging_task
from ematix_flow.dataplane.type_mapping import arrow_type, pairs
from ematix_flow.declare.connections import PostgresConnection
from ematix_flow.declare.types import Column, ColumnType
from ematix_flow.families.sql.held_session import SharedSession
from ematix_flow.families.sql.session import SqlSession
from ematix_flow.families.sql.sink import SqlSink
from ematix_flow.families.sql.statements import JobSql
from ematix_flow.foundation import fault
from ematix_flow.foundation.errors import NullViolation, TextTooLong
from ematix_flow.foundation.lazy_imports import pa, pc

_REFUSED = (NullViolation, TextTooLong)


class PostgresSink(SqlSink, QueryStage):
    """A sink that stages by binary COPY."""

    dialect = PostgresDialect()

    def __init__(self, connection: PostgresConnection) -> None:
        self._connection = connection
        self._held: SharedSession | None = None

    def connect(self) -> SqlSession:
        return self._held.lend() if self._held is not None else connect(self._connection)

    def keep_session(self) -> None:
        self._held = SharedSession(lambda: connect(self._connection), reset="DISCARD ALL")

    def release_session(self) -> None:
        if self._held is not None:
            self._held.close()

    def ddl(self) -> PostgresDdl:
        return PostgresDdl(self._connection)

    def _relation(self, name: str) -> str:
        return self.dialect.relation(self.dialect.meta_schema, name)

    def _create_stage(self, job: WriteJob) -> str:
        relation = self._relation(stage_table_name(job.run_id))
        columns = [
            f"{self.dialect.quote(column.name)} {self._stage_type(column)}" for column in job.shape.declared.columns
        ]
        columns.append(f"{ATTEMPT} bigint")
        with self.connect() as session:
            # An autovacuum worker on the stage would delay its removal by a second (deadlock_timeout).
            session.execute(
                f"CREATE UNLOGGED TABLE {relation} ({', '.join(columns)}) WITH (autovacuum_enabled = false)"
            )
        return relation

    def _stage_type(self, column: Column) -> str:
        # Lengths are checked on the stage, with a better message than the database's own.
        return "text" if column.type.kind == "string" else self.dialect.type_sql(column)

    def stage_arrow(self, job: WriteJob, tasks: TaskInput) -> Stage:
        """Stage the rows of every task by COPY; rows of attempts that Spark discarded are deleted."""
        with self.connect() as session:
            replaces = table_swap.create_stage(session, self._writing(job, stage_table_name(job.run_id)))
        if replaces:
            try:
                return self._filled(job, tasks, replaces=True)
            except Exception as exc:
                if not isinstance(carried_error_in(str(exc)), _REFUSED):
                    raise
                with self.connect() as session:  # without constraints, checks of the stage report the rows
                    self.drop_stage(session, job.run_id)
        self._create_stage(job)
        return self._filled(job, tasks)

    def _writing(self, job: WriteJob, name: str) -> JobSql:
        return JobSql(self.dialect, job, self._relation(name))

    def _filled(self, job: WriteJob, tasks: TaskInput, *, replaces: bool = False) -> Stage:
        columns = pairs(job.shape.declared.columns)
        work = _writer(dsn(self._connection), self.dialect.meta_schema, stage_table_name(job.run_id), columns)
        outcome = in_tasks(tasks, staging_task(work, translate), "attempt BIGINT, rows BIGINT").collect()
        rows = sum(row["rows"] for row in outcome)
        with self.connect() as session:
            relation = self._seal(session, job.run_id)
            if int(session.scalar(f"SELECT COUNT(*) FROM {relation}")) != rows:
                winners = ", ".join(str(row["attempt"]) for row in outcome) or "-1"
                session.execute(f"DELETE FROM {relation} WHERE {ATTEMPT} NOT IN ({winners})")
            if replaces:
                table_swap.add_key(session, self._writing(job, sealed_stage_name(job.run_id)))
            session.execute(f"ANALYZE {relation}")
        return Stage(relation, rows)

    def _replace_table(self, session: SqlSession, job_sql: JobSql) -> int | None:
        return table_swap.replace_table(session, job_sql)

    def _seal(self, session: SqlSession, run_id: str) -> str:
        """Rename the stage, so that a task that Spark abandoned but still runs finds no table of its name.

        A task in the middle of its COPY would hold its lock to the end, so its connection is terminated first.
        """
        relation, sealed = self._relation(stage_table_name(run_id)), sealed_stage_name(run_id)
        session.execute(
            "SELECT pg_terminate_backend(a.pid) FROM pg_locks AS l JOIN pg_stat_activity AS a ON a.pid = l.pid "
            f"WHERE l.relation = to_regclass({self.dialect.text_literal(relation)}) AND l.mode = 'RowExclusiveLock' "
            "AND a.datname = current_database() AND a.usename = current_user AND a.pid <> pg_backend_pid()"
        )
        session.execute(f"ALTER TABLE {relation} RENAME TO {self.dialect.quote(sealed)}")
        return self._relation(sealed)

    def stage_query(self, job: WriteJob, query: str) -> Stage:
        """Stage the result of a query inside the database."""
        relation = self._create_stage(job)
        names = self.dialect.names(job.shape.declared.column_names)
        with self.connect() as session:
            rows = session.execute(f"INSERT INTO {relation} ({names}) SELECT {names} FROM (\n{query}\n) AS q")
            session.execute(f"ANALYZE {relation}")
        return Stage(relation, rows)

    def drop_stage(self, session: SqlSession, run_id: str) -> None:
        relations = ", ".join(self._relation(name) for name in (stage_table_name(run_id), sealed_stage_name(run_id)))
        session.execute(f"DROP TABLE IF EXISTS {relations}")


def _writer(url: str, schema: str, table: str, columns: list[tuple[str, ColumnType]]) -> Any:
    driver = os.getpid()

    def write(batches: Iterator[Any]) -> Iterator[Any]:
        attempt = attempt_number()
        counted = 0

        def typed() -> Iterator[Any]:
            nonlocal counted
            for batch in batches:
                counted += batch.num_rows
                yield _typed(batch, columns, attempt)
                fault.point("mid_stage", victim=driver)

        typed_batches = typed()
        first = next(typed_batches, None)
        if first is not None:
            _ingest(url, schema, table, first, typed_batches)
        yield row_batch({"attempt": attempt, "rows": counted})

    return write


def _ingest(url: str, schema: str, table: str, first: Any, rest: Iterator[Any]) -> None:
    import itertools

    import adbc_driver_postgresql.dbapi as adbc

    reader = pa.RecordBatchReader.from_batches(first.schema, itertools.chain([first], rest))
    with adbc.connect(url) as session:
        with session.cursor() as cursor:
            cursor.adbc_ingest(table, reader, mode="append", db_schema_name=schema)
        session.commit()


def _typed(batch: Any, columns: list[tuple[str, ColumnType]], attempt: int) -> Any:
    """Return the batch with the exact types that binary COPY requires, and the attempt column."""
    arrays = []
    for index, (_, column_type) in enumerate(columns):
        array = batch.column(index)
        if column_type.kind == "uuid":
            array = _sixteen_bytes(array)
        elif column_type.kind in ("json", "jsonb"):
            array = pa.ExtensionArray.from_storage(pa.json_(), array.cast(pa.string()))
        elif array.type != arrow_type(column_type):
            array = array.cast(arrow_type(column_type))
        arrays.append(array)
    arrays.append(repeated_value(attempt, pa.int64(), batch.num_rows))
    names = [name for name, _ in columns]
    return pa.RecordBatch.from_arrays(arrays, names=[*names, ATTEMPT])


def _sixteen_bytes(texts: Any) -> Any:
    """Return UUIDs in PostgreSQL's wire format, computed without a loop over the rows."""
    filled = pc.fill_null(texts.cast(pa.string()), "00000000-0000-0000-0000-000000000000")
    digits = pc.replace_substring(filled, "-", "")
    joined = pc.binary_join(pa.ListArray.from_arrays([0, len(digits)], digits), "")[0].as_py() if len(digits) else ""
    whole = pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(texts), [None, pa.py_buffer(bytes.fromhex(joined))])
    return pc.if_else(texts.is_valid(), whole, pa.scalar(None, pa.binary(16))) if texts.null_count else whole
