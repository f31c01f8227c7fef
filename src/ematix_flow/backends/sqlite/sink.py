"""The SQLite sink: rows are staged in a separate database file, then loaded into the target in one transaction."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ematix_flow.backends.sqlite import values
from ematix_flow.backends.sqlite.ddl import SqliteDdl
from ematix_flow.backends.sqlite.dialect import EXACT_DIGITS, SqliteDialect
from ematix_flow.backends.sqlite.errors import translate
from ematix_flow.backends.sqlite.session import DECIMAL_ORDER, connect_file, connect_target, database_path, require_adbc
from ematix_flow.backends.sqlite.storage_classes import storage_schema, to_storage
from ematix_flow.contract.backend import QueryStage
from ematix_flow.contract.lane import TaskInput
from ematix_flow.contract.write import Stage, WriteJob
from ematix_flow.dataplane import parquet_stage
from ematix_flow.dataplane.type_mapping import pairs
from ematix_flow.declare.connections import SQLiteConnection
from ematix_flow.declare.strategy import Changes, Merge, Scd2
from ematix_flow.declare.table import TableSpec
from ematix_flow.declare.types import Column, Numeric
from ematix_flow.families.sql.file_database import FileDatabaseSink
from ematix_flow.families.sql.scd2_events import observations_of
from ematix_flow.families.sql.session import SqlSession
from ematix_flow.foundation.errors import BadValue, FlowError
from ematix_flow.foundation.lazy_imports import pa

_FILE = "stage.db"
_ATTACHED = "flow_stage"
_ROWS_PER_BATCH = 50_000


class SqliteSink(FileDatabaseSink, QueryStage):
    """A sink that stages through Parquet files and ADBC, and publishes from an attached database."""

    dialect = SqliteDialect()

    def __init__(self, connection: SQLiteConnection) -> None:
        super().__init__(connection, database_path(connection), kind="sqlite")

    def connect(self) -> SqlSession:
        return connect_target(self._connection)

    def ddl(self) -> SqliteDdl:
        return SqliteDdl(self._connection)

    def stage_arrow(self, job: WriteJob, tasks: TaskInput) -> Stage:
        """Let tasks write Parquet in parallel, then stream it into the stage's own database file in this process."""
        require_adbc()
        written = parquet_stage.write_stage(tasks, job, owner=self._owner)
        file = self._create_stage(job)
        _ingest(str(written.location), file, job)
        shutil.rmtree(str(written.location), ignore_errors=True)
        self._index(job, file)
        return Stage(f"{_ATTACHED}.rows", written.rows, str(file))

    def stage_query(self, job: WriteJob, query: str) -> Stage:
        """Fill the stage by a query inside SQLite, with values in the canonical form of their declared types."""
        file = self._create_stage(job)
        columns = job.shape.declared.columns
        names = self.dialect.names(job.shape.declared.column_names)
        with self.connect() as session:
            self._attach(session, file)
            session.execute(f"CREATE TEMP TABLE flow_given AS SELECT {names} FROM (\n{query}\n) AS q")
            self._check_values(session, columns)
            selected = ", ".join(values.stored(self.dialect.quote(column.name), column.type) for column in columns)
            rows = session.execute(f"INSERT INTO {_ATTACHED}.rows ({names}) SELECT {selected} FROM temp.flow_given")
        self._index(job, file)
        return Stage(f"{_ATTACHED}.rows", rows, str(file))

    def open_stage(self, session: SqlSession, stage: Stage) -> str:
        """Attach the stage's file and return the name of its table."""
        self._attach(session, Path(str(stage.location)))
        return stage.relation

    def drop_stage(self, session: SqlSession, run_id: str) -> None:
        parquet_stage.drop_stage_dir(run_id, self._owner)

    def _attach(self, session: SqlSession, file: Path) -> None:
        session.execute(f"ATTACH DATABASE {self.dialect.text_literal(str(file))} AS {_ATTACHED}")

    def _create_stage(self, job: WriteJob) -> Path:
        file = parquet_stage.make_stage_dir(job.run_id, self._owner) / _FILE
        file.unlink(missing_ok=True)
        columns = ", ".join(self._stage_column(column) for column in job.shape.declared.columns)
        with connect_file(file) as session:
            session.execute(f"CREATE TABLE rows ({columns})")
        return file

    def _stage_column(self, column: Column) -> str:
        # Decimals stored as text must sort as numbers where SQL compares them, for watermarks.
        is_text = isinstance(column.type, Numeric) and column.type.precision > EXACT_DIGITS
        order = f" COLLATE {DECIMAL_ORDER}" if is_text else ""
        return f"{self.dialect.quote(column.name)} {self.dialect.type_sql(column)}{order}"

    def _index(self, job: WriteJob, file: Path) -> None:
        """Index the keys on both sides: SQLite joins by an index or row by row."""
        if not isinstance(job.strategy, (Merge, Scd2, Changes)):
            return
        keys = job.strategy.keys
        with connect_file(file) as session:
            session.execute("PRAGMA journal_mode = OFF")
            session.execute("PRAGMA synchronous = OFF")
            session.execute(f"CREATE INDEX keys ON rows ({self.dialect.names(keys)})")
        if not job.dry_run:
            with self.connect() as session:
                self._index_keys(session, job.shape.table, keys)

    def ensure_observations(self, job: WriteJob) -> None:
        super().ensure_observations(job)
        if isinstance(job.strategy, Scd2):
            with self.connect() as session:
                self._index_keys(session, observations_of(job.shape), job.strategy.keys)

    def _index_keys(self, session: SqlSession, table: TableSpec, keys: Sequence[str]) -> None:
        """Create an index that begins with these columns, unless one exists."""
        name = self.dialect.table_name(table.schema, table.name)
        literal = self.dialect.text_literal(name)
        primary = [
            str(row[0])
            for row in session.rows(f"SELECT name FROM pragma_table_info({literal}) WHERE pk > 0 ORDER BY pk")
        ]
        indexes = [primary]
        for (index,) in session.rows(f"SELECT name FROM pragma_index_list({literal}) WHERE NOT partial"):
            about = self.dialect.text_literal(str(index))
            indexes.append(
                [str(row[0]) for row in session.rows(f"SELECT name FROM pragma_index_info({about}) ORDER BY seqno")]
            )
        if not any(set(columns[: len(keys)]) == set(keys) for columns in indexes):
            index = self.dialect.quote(f"{name}__flow_keys")
            session.execute(
                f"CREATE INDEX IF NOT EXISTS {index} ON {self.dialect.quote(name)} ({self.dialect.names(keys)})"
            )

    def _check_values(self, session: SqlSession, columns: tuple[Column, ...]) -> None:
        for column in columns:
            name = self.dialect.quote(column.name)
            wrong = f"{name} IS NOT NULL AND NOT {values.is_valid(name, column.type)}"
            rows = session.rows(f"SELECT {name}, COUNT(*) FROM temp.flow_given WHERE {wrong}")[0]
            if rows[1]:
                raise BadValue(
                    f"column {column.name!r}: {rows[0]!r} is not a {column.type} ({rows[1]} row(s)); nothing was loaded",
                    hint="correct the source, or parse it with a normalizer (parse_int, parse_timestamp, …)",
                    column=column.name,
                )


def _ingest(folder: str, file: Path, job: WriteJob) -> None:
    import adbc_driver_sqlite.dbapi as adbc
    import pyarrow.dataset as ds

    columns = pairs(job.shape.declared.columns)
    refused: list[FlowError] = []

    def stored() -> Iterator[Any]:
        scanned = ds.dataset(folder, format="parquet").to_batches(
            batch_size=_ROWS_PER_BATCH, batch_readahead=2, fragment_readahead=1
        )
        for batch in scanned:
            try:
                yield to_storage(batch, columns)
            except FlowError as exc:  # the driver would keep only its text
                refused.append(exc)
                raise

    reader = pa.RecordBatchReader.from_batches(storage_schema(columns), stored())
    try:
        with adbc.connect(str(file), autocommit=True) as session, session.cursor() as cursor:
            cursor.execute("PRAGMA journal_mode = OFF")
            cursor.execute("PRAGMA synchronous = OFF")
            cursor.adbc_ingest("rows", reader, mode="append")
    except Exception as exc:
        raise (refused[0] if refused else translate(exc)) from exc
