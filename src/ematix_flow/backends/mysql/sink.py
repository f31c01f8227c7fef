"""The MySQL and MariaDB sink: tasks fill a stage, and the driver publishes it in one transaction."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

from ematix_flow.backends.mysql.ddl import MySqlDdl
from ematix_flow.backends.mysql.dialect import MySqlDialect
from ematix_flow.backends.mysql.errors import translate
from ematix_flow.backends.mysql.session import MySqlLogin, collation_of, connect, login_of
from ematix_flow.backends.mysql.stage_loading import ATTEMPT, InsertLoader, LocalInfileLoader
from ematix_flow.contract.backend import QueryStage
from ematix_flow.contract.lane import TaskInput
from ematix_flow.contract.write import Stage, WriteJob
from ematix_flow.dataplane.arrow_values import row_batch
from ematix_flow.dataplane.spark_tasks import attempt_number, in_tasks
from ematix_flow.dataplane.task_errors import staging_task
from ematix_flow.dataplane.type_mapping import pairs
from ematix_flow.declare.connections import MySQLConnection
from ematix_flow.declare.strategy import Changes, Merge, Scd2
from ematix_flow.declare.types import Column, ColumnType
from ematix_flow.families.sql.session import SqlSession
from ematix_flow.families.sql.sink import SqlSink
from ematix_flow.foundation import fault
from ematix_flow.foundation.errors import Unsupported

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


_TEXTS = ("text", "string", "json", "jsonb")


class MySqlSink(SqlSink, QueryStage):
    """A sink that stages by LOAD DATA LOCAL where the server allows it, otherwise by INSERT statements of many rows."""

    def __init__(self, connection: MySQLConnection) -> None:
        self._connection = connection
        self.dialect: MySqlDialect = MySqlDialect(lambda: collation_of(connection))

    def connect(self) -> SqlSession:
        return connect(self._connection)

    def ddl(self) -> MySqlDdl:
        return MySqlDdl(self._connection)

    def _relation(self, run_id: str, *, sealed: bool = False) -> str:
        name = f"stage_{run_id.replace('-', '')}{'_sealed' if sealed else ''}"
        return self.dialect.relation(self.dialect.meta_schema, name)

    def arrow_obstacle(self, job: WriteJob) -> str | None:
        """Return why tasks cannot write Arrow batches: bytes become hexadecimal text, which only Spark renders fast."""
        name = next((column.name for column in job.shape.declared.columns if column.type.kind == "bytes"), None)
        return f"the bytes of {name} become hexadecimal text in Spark" if name else None

    def stage(self, job: WriteJob, frame: DataFrame) -> Stage:
        """Stage the rows of a Spark frame, with bytes as hexadecimal text."""
        return self.stage_arrow(job, frame.selectExpr(*(_to_carrier(column) for column in job.shape.declared.columns)))

    def stage_arrow(self, job: WriteJob, tasks: TaskInput) -> Stage:
        """Stage the rows of every task; rows of attempts that Spark discarded are deleted."""
        relation = self._relation(job.run_id)
        columns = job.shape.declared.columns
        with self.connect() as session:
            self._create_stage(session, job, relation)
            from_files = bool(session.scalar("SELECT @@GLOBAL.local_infile"))
        work = _writer(login_of(self._connection), relation, pairs(columns), from_files=from_files)
        outcome = in_tasks(tasks, staging_task(work, translate), "attempt BIGINT, rows BIGINT").collect()
        rows = sum(row["rows"] for row in outcome)
        with self.connect() as session:
            # A task that Spark abandoned may still run: after the rename it finds no table of its name.
            relation, before = self._relation(job.run_id, sealed=True), relation
            session.execute(f"RENAME TABLE {before} TO {relation}")
            if int(session.scalar(f"SELECT COUNT(*) FROM {relation}")) != rows:
                winners = ", ".join(str(row["attempt"]) for row in outcome) or "-1"
                session.execute(f"DELETE FROM {relation} WHERE {ATTEMPT} NOT IN ({winners})")
            self._index_stage(session, job, relation)
        return Stage(relation, rows)

    def stage_query(self, job: WriteJob, query: str) -> Stage:
        """Stage the result of a query inside the database."""
        relation = self._relation(job.run_id)
        columns = job.shape.declared.columns
        names = self.dialect.names([column.name for column in columns])
        chosen = ", ".join(_checked(self.dialect.quote(column.name), column) for column in columns)
        with self.connect() as session:
            self._create_stage(session, job, relation)
            rows = session.execute(f"INSERT INTO {relation} ({names}) SELECT {chosen} FROM (\n{query}\n) AS q")
            self._index_stage(session, job, relation)
        return Stage(relation, rows)

    def _create_stage(self, session: SqlSession, job: WriteJob, relation: str) -> None:
        collations = self._target_collations(session, job)
        lines = []
        for column in job.shape.declared.columns:
            name = self.dialect.quote(column.name)
            # Longer than the target allows: lengths are checked on the stage, with a better message.
            kind = "longtext" if column.type.kind in _TEXTS else self.dialect.type_sql(column)
            lines.append(f"{name} {kind}{collations.get(column.name, '')}")
        lines.append(f"{ATTEMPT} bigint")
        session.execute(f"CREATE TABLE {relation} ({', '.join(lines)}){self.dialect.table_suffix()}")

    def _target_collations(self, session: SqlSession, job: WriteJob) -> dict[str, str]:
        """Return the key columns' collations: a join uses the target's index only where both sides have the same."""
        table, literal = job.shape.table, self.dialect.text_literal
        schema = literal(table.schema) if table.schema else "DATABASE()"
        place = f"table_schema = {schema} AND table_name = {literal(table.name)}"
        engine = session.scalar(f"SELECT engine FROM information_schema.tables WHERE {place}")
        if engine is not None and str(engine).lower() != "innodb":
            raise Unsupported(
                f"{table.qualified} is a {engine} table, which cannot be loaded in one transaction",
                hint=f"ALTER TABLE {self.dialect.relation(table.schema, table.name)} ENGINE=InnoDB",
            )
        rows = session.rows(
            "SELECT column_name, character_set_name, collation_name FROM information_schema.columns "
            f"WHERE {place} AND collation_name IS NOT NULL"
        )
        keys = _keys(job)
        return {str(n): f" CHARACTER SET {c} COLLATE {o}" for n, c, o in rows if n in keys}

    def _index_stage(self, session: SqlSession, job: WriteJob, relation: str) -> None:
        """Index the keys of the stage: without it, every lookup from the target would scan the whole stage."""
        columns = [job.shape.declared.column(name) for name in _keys(job)]
        if not columns:
            return
        session.execute(f"ALTER TABLE {relation} ADD {self.dialect.lookup_lines(columns)[0]}")
        session.rows(f"ANALYZE TABLE {relation}")

    def drop_stage(self, session: SqlSession, run_id: str) -> None:
        session.execute(f"DROP TABLE IF EXISTS {self._relation(run_id)}, {self._relation(run_id, sealed=True)}")


def _keys(job: WriteJob) -> tuple[str, ...]:
    if isinstance(job.strategy, (Merge, Scd2, Changes)):
        return job.strategy.keys
    return job.shape.declared.primary_key if job.incremental else ()


def _to_carrier(column: Column) -> str:
    name = f"`{column.name.replace('`', '``')}`"
    return f"hex({name}) AS {name}" if column.type.kind == "bytes" else name


def _checked(name: str, column: Column) -> str:
    """Return SQL of a column for the stage, so that values MySQL would silently accept raise an error."""
    if column.type.kind == "boolean":
        return (
            f"CASE WHEN {name} IS NULL OR {name} IN (0, 1) THEN {name} ELSE CONCAT({name}, ' is neither 0 nor 1') END"
        )
    return f"LOWER({name})" if column.type.kind == "uuid" else name


def _writer(data: MySqlLogin, relation: str, columns: list[tuple[str, ColumnType]], *, from_files: bool) -> Any:
    driver = os.getpid()

    def write(batches: Iterator[Any]) -> Iterator[Any]:
        attempt = attempt_number()
        kind = LocalInfileLoader if from_files else InsertLoader
        counted = 0
        with closing(kind(data, relation=relation, columns=columns, attempt=attempt)) as filling:
            for batch in batches:
                filling.add(batch)
                counted += batch.num_rows
                fault.point("mid_stage", victim=driver)
            filling.finish()
        yield row_batch({"attempt": attempt, "rows": counted})

    return write
