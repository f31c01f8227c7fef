"""Writing PostgreSQL: every task copies its rows into a stage, the driver publishes it in one transaction."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ematix_flow.backends.postgres.ddl import PostgresDdl
from ematix_flow.backends.postgres.dialect import PostgresDialect
from ematix_flow.backends.postgres.errors import translate
from ematix_flow.backends.postgres.session import connect, dsn
from ematix_flow.contract.lane import Tasks
from ematix_flow.contract.write import Stage, WriteJob
from ematix_flow.declare.types import Column, ColumnType
from ematix_flow.families.attempt import attempt_number
from ematix_flow.families.carry import staging
from ematix_flow.families.frames import arrow_type, pairs
from ematix_flow.families.small_arrow import repeated, row_batch
from ematix_flow.families.sql.session import SqlSession
from ematix_flow.families.sql.sink import SqlSink
from ematix_flow.foundation import fault

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ematix_flow.declare.connections import PostgresConnection

_ATTEMPT = "_flow_attempt"
_SEALED = "_sealed"


class PostgresSink(SqlSink):
    """Stages by binary COPY."""

    dialect = PostgresDialect()

    def __init__(self, connection: PostgresConnection) -> None:
        self._connection = connection

    def connect(self) -> SqlSession:
        return connect(self._connection)

    def ddl(self) -> PostgresDdl:
        return PostgresDdl(self._connection)

    def _stage_name(self, run_id: str) -> str:
        return f"stage_{run_id.replace('-', '')}"

    def _create_stage(self, job: WriteJob) -> str:
        name = self._stage_name(job.run_id)
        relation = self.dialect.relation(self.dialect.meta_schema, name)
        columns = [
            f"{self.dialect.quote(column.name)} {self._stage_type(column)}" for column in job.shape.declared.columns
        ]
        columns.append(f"{_ATTEMPT} bigint")
        with self.connect() as session:
            session.execute(f"CREATE UNLOGGED TABLE {relation} ({', '.join(columns)})")
        return relation

    def _stage_type(self, column: Column) -> str:
        # Lengths are checked on the stage with a better message than the database's own.
        return "text" if column.type.kind == "string" else self.dialect.type_sql(column)

    def arrow_obstacle(self, job: WriteJob) -> str | None:
        """Every load can take Arrow batches."""
        return None

    def stage(self, job: WriteJob, frame: DataFrame) -> Stage:
        """COPY Spark's rows."""
        return self.stage_arrow(job, frame)

    def stage_arrow(self, job: WriteJob, tasks: Tasks) -> Stage:
        """COPY from every task; only rows of attempts that Spark counts are ever read."""
        self._create_stage(job)
        columns = pairs(job.shape.declared.columns)
        work = _writer(dsn(self._connection), self.dialect.meta_schema, self._stage_name(job.run_id), columns)
        outcome = tasks.mapInArrow(staging(work, translate), "attempt BIGINT, rows BIGINT").collect()
        rows = sum(row["rows"] for row in outcome)
        with self.connect() as session:
            relation = self._seal(session, job.run_id)
            if int(session.scalar(f"SELECT COUNT(*) FROM {relation}")) != rows:
                winners = ", ".join(str(row["attempt"]) for row in outcome) or "-1"
                session.execute(f"DELETE FROM {relation} WHERE {_ATTEMPT} NOT IN ({winners})")
            session.execute(f"ANALYZE {relation}")
        return Stage(relation, rows)

    def _seal(self, session: SqlSession, run_id: str) -> str:
        """Nobody writes here any more: a task that Spark gave up may still live, and finds no table of its name.

        One that is in the middle of its COPY would hold the table until its end, so its connection is ended.
        """
        name = self._stage_name(run_id)
        relation = self.dialect.relation(self.dialect.meta_schema, name)
        session.execute(
            "SELECT pg_terminate_backend(a.pid) FROM pg_locks AS l JOIN pg_stat_activity AS a ON a.pid = l.pid "
            f"WHERE l.relation = to_regclass({self.dialect.text_literal(relation)}) AND l.mode = 'RowExclusiveLock' "
            "AND a.datname = current_database() AND a.usename = current_user AND a.pid <> pg_backend_pid()"
        )
        session.execute(f"ALTER TABLE {relation} RENAME TO {self.dialect.quote(name + _SEALED)}")
        return self.dialect.relation(self.dialect.meta_schema, name + _SEALED)

    def stage_query(self, job: WriteJob, query: str) -> Stage:
        """Fill the stage inside the database."""
        relation = self._create_stage(job)
        names = self.dialect.names(job.shape.declared.column_names)
        with self.connect() as session:
            rows = session.execute(f"INSERT INTO {relation} ({names}) SELECT {names} FROM (\n{query}\n) AS q")
            session.execute(f"ANALYZE {relation}")
        return Stage(relation, rows)

    def drop_stage(self, session: SqlSession, run_id: str) -> None:
        names = [self._stage_name(run_id), self._stage_name(run_id) + _SEALED]
        relations = ", ".join(self.dialect.relation(self.dialect.meta_schema, name) for name in names)
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

        found = typed()
        first = next(found, None)
        if first is not None:
            _ingest(url, schema, table, first, found)
        yield row_batch({"attempt": attempt, "rows": counted})

    return write


def _ingest(url: str, schema: str, table: str, first: Any, rest: Iterator[Any]) -> None:
    import itertools

    import adbc_driver_postgresql.dbapi as adbc
    import pyarrow as pa

    reader = pa.RecordBatchReader.from_batches(first.schema, itertools.chain([first], rest))
    with adbc.connect(url) as session:
        with session.cursor() as cursor:
            cursor.adbc_ingest(table, reader, mode="append", db_schema_name=schema)
        session.commit()


def _typed(batch: Any, columns: list[tuple[str, ColumnType]], attempt: int) -> Any:
    """Columns in the exact types a binary COPY wants."""
    import pyarrow as pa

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
    arrays.append(repeated(attempt, pa.int64(), batch.num_rows))
    names = [name for name, _ in columns]
    return pa.RecordBatch.from_arrays(arrays, names=[*names, _ATTEMPT])


def _sixteen_bytes(texts: Any) -> Any:
    """UUIDs as PostgreSQL's wire format has them, without a loop over the rows."""
    import pyarrow as pa
    import pyarrow.compute as pc

    filled = pc.fill_null(texts.cast(pa.string()), "00000000-0000-0000-0000-000000000000")
    digits = pc.replace_substring(filled, "-", "")
    joined = pc.binary_join(pa.ListArray.from_arrays([0, len(digits)], digits), "")[0].as_py() if len(digits) else ""
    whole = pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(texts), [None, pa.py_buffer(bytes.fromhex(joined))])
    return pc.if_else(texts.is_valid(), whole, pa.scalar(None, pa.binary(16))) if texts.null_count else whole
