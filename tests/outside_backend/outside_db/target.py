"""Writing: the tasks write files, a stage table is filled from them, and the family publishes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ematix_flow.contract.backend import QueryStage
from ematix_flow.contract.lane import ArrowStage, TaskInput
from ematix_flow.contract.write import Stage, WriteJob
from ematix_flow.dataplane import parquet_stage
from ematix_flow.families.sql.session import SqlSession
from ematix_flow.families.sql.sink import SqlSink
from outside_db.connection import OutsideConnection
from outside_db.database import OutsideSession, connect, place
from outside_db.dialect import OutsideDialect
from outside_db.tables import OutsideDdl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class OutsideSink(SqlSink, ArrowStage, QueryStage):
    """Loads into one database."""

    dialect = OutsideDialect()

    def __init__(self, connection: OutsideConnection) -> None:
        self._connection = connection
        self._owner = f"outside-{connection.name}"

    def connect(self) -> OutsideSession:
        return connect(self._connection)

    def has_database(self) -> bool:
        return place(self._connection).exists()

    def ddl(self) -> OutsideDdl:
        return OutsideDdl(self._connection)

    def arrow_obstacle(self, job: WriteJob) -> str | None:
        return None

    def stage(self, job: WriteJob, frame: DataFrame) -> Stage:
        return self.stage_arrow(job, frame)

    def stage_arrow(self, job: WriteJob, tasks: TaskInput) -> Stage:
        written = parquet_stage.write_stage(tasks, job, owner=self._owner)
        files = self.dialect.text_literal(f"{written.location}/*.parquet")
        return self.stage_query(job, f"SELECT * FROM read_parquet({files})")

    def stage_query(self, job: WriteJob, query: str) -> Stage:
        d, relation = self.dialect, self._stage_of(job.run_id)
        chosen = ", ".join(
            f"CAST({d.quote(column.name)} AS {d.type_sql(column)}) AS {d.quote(column.name)}"
            for column in job.shape.declared.columns
        )
        with self.connect() as session:
            session.execute(f"CREATE SCHEMA IF NOT EXISTS {d.quote(d.meta_schema)}")
            return Stage(
                relation, session.execute(f"CREATE OR REPLACE TABLE {relation} AS SELECT {chosen} FROM ({query})")
            )

    def drop_stage(self, session: SqlSession, run_id: str) -> None:
        session.execute(f"DROP TABLE IF EXISTS {self._stage_of(run_id)}")
        parquet_stage.drop_stage_dir(run_id, self._owner)

    def _stage_of(self, run_id: str) -> str:
        return self.dialect.relation(self.dialect.meta_schema, f"stage_{run_id.replace('-', '')}")
