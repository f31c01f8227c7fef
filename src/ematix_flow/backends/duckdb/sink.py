"""The DuckDB sink: Spark tasks write Parquet, and this process alone loads it into the file in one transaction."""

from __future__ import annotations

import glob

from ematix_flow.backends.duckdb.ddl import DuckdbDdl
from ematix_flow.backends.duckdb.dialect import DuckdbDialect
from ematix_flow.backends.duckdb.session import catalog_name, connect_target, database_path
from ematix_flow.contract.backend import QueryStage
from ematix_flow.contract.lane import TaskInput
from ematix_flow.contract.write import Stage, WriteJob
from ematix_flow.dataplane import parquet_stage
from ematix_flow.declare.connections import DuckDBConnection
from ematix_flow.declare.types import Column
from ematix_flow.families.sql.file_database import FileDatabaseSink
from ematix_flow.families.sql.session import SqlSession

_VIEW = "flow_stage"


class DuckdbSink(FileDatabaseSink, QueryStage):
    """A sink whose stages are Parquet files that DuckDB reads in place."""

    def __init__(self, connection: DuckDBConnection) -> None:
        super().__init__(connection, database_path(connection), kind="duckdb")
        self.dialect = DuckdbDialect(catalog_name(self._path))

    def connect(self) -> SqlSession:
        return connect_target(self._connection)

    def ddl(self) -> DuckdbDdl:
        return DuckdbDdl(self._connection)

    def stage_arrow(self, job: WriteJob, tasks: TaskInput) -> Stage:
        """Let every task write a Parquet file; the stage is a query on these files, and the database is not opened."""
        written = parquet_stage.write_stage(tasks, job, owner=self._owner)
        return Stage(self._select(job, str(written.location)), written.rows, written.location)

    def stage_query(self, job: WriteJob, query: str) -> Stage:
        """Create a stage table beside the target, from a query inside DuckDB."""
        relation = self.dialect.relation(self.dialect.meta_schema, _table_name(job.run_id))
        chosen = ", ".join(self._cast(column) for column in job.shape.declared.columns)
        with self.connect() as session:
            session.execute(self.dialect.create_schema(self.dialect.meta_schema) or "SELECT 1")
            rows = session.execute(f"CREATE OR REPLACE TABLE {relation} AS SELECT {chosen} FROM (\n{query}\n) AS q")
        return Stage(relation, rows)

    def open_stage(self, session: SqlSession, stage: Stage) -> str:
        """Return the stage's name in this session; Parquet files become a temporary view with the target's types."""
        if stage.location is None:
            return stage.relation
        session.execute(f"CREATE OR REPLACE TEMPORARY VIEW {_VIEW} AS {stage.relation}")
        return f"temp.{_VIEW}"

    def drop_stage(self, session: SqlSession, run_id: str) -> None:
        session.execute(f"DROP TABLE IF EXISTS {self.dialect.relation(self.dialect.meta_schema, _table_name(run_id))}")
        parquet_stage.drop_stage_dir(run_id, self._owner)

    def _select(self, job: WriteJob, folder: str) -> str:
        chosen = ", ".join(self._cast(column) for column in job.shape.declared.columns)
        files = self.dialect.text_literal(f"{glob.escape(folder)}/*.parquet")
        return f"SELECT {chosen} FROM read_parquet({files})"

    def _cast(self, column: Column) -> str:
        name = self.dialect.quote(column.name)
        return f"CAST({name} AS {self.dialect.type_sql(column)}) AS {name}"


def _table_name(run_id: str) -> str:
    return f"stage_{run_id.replace('-', '')}"
