"""SQLite: batch source and sink, Arrow reads, stages in separate database files, effectively-once writes."""

from __future__ import annotations

from ematix_flow.backends.sqlite.ddl import SqliteDdl
from ematix_flow.backends.sqlite.dialect import SqliteDialect
from ematix_flow.backends.sqlite.session import connect, database_path, identity
from ematix_flow.backends.sqlite.sink import SqliteSink
from ematix_flow.backends.sqlite.source import SqliteSource
from ematix_flow.contract.backend import Backend, TaskResources
from ematix_flow.dataplane import parquet_stage
from ematix_flow.declare.connections import SQLiteConnection

backend = Backend(
    name="sqlite",
    title="SQLite",
    connection_types=(SQLiteConnection,),
    dialect="sqlite",
    strategies=frozenset({"append", "truncate", "merge", "scd2"}),
    takes_changes=True,
    extra="sqlite",
    batch_source=SqliteSource,
    batch_sink=SqliteSink,
    ddl=SqliteDdl,
    client=connect,
    sql=lambda _: SqliteDialect(),
    identity=identity,
    tasks_reading=TaskResources(("adbc_driver_sqlite",), lambda connection: (database_path(connection).parent,)),
    tasks_writing=TaskResources(folders=lambda _: (parquet_stage.stage_root(),)),
    one_writer=True,
    notes=(
        "a schema is a prefix: analytics.events is the table analytics_events",
        "dates, timestamps and long decimals are text that other programs can read and sort",
        "NaN cannot be stored and is refused",
    ),
)
