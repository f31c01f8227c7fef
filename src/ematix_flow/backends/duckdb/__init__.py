"""DuckDB: batch source and sink through Parquet, effectively-once writes; the file is open only while it is used."""

from __future__ import annotations

from ematix_flow.backends.duckdb.ddl import DuckdbDdl
from ematix_flow.backends.duckdb.dialect import DuckdbDialect
from ematix_flow.backends.duckdb.session import catalog_name, connect, database_path, identity
from ematix_flow.backends.duckdb.sink import DuckdbSink
from ematix_flow.backends.duckdb.source import DuckdbSource
from ematix_flow.contract.backend import Backend, TaskResources
from ematix_flow.dataplane import parquet_stage
from ematix_flow.declare.connections import DuckDBConnection

backend = Backend(
    name="duckdb",
    title="DuckDB",
    connection_types=(DuckDBConnection,),
    dialect="duckdb",
    strategies=frozenset({"append", "truncate", "merge", "scd2"}),
    takes_changes=True,
    extra="duckdb",
    batch_source=DuckdbSource,
    batch_sink=DuckdbSink,
    ddl=DuckdbDdl,
    client=connect,
    sql=lambda connection: DuckdbDialect(catalog_name(database_path(connection))),
    identity=identity,
    tasks_reading=TaskResources(folders=lambda _: (parquet_stage.stage_root(),)),
    tasks_writing=TaskResources(folders=lambda _: (parquet_stage.stage_root(),)),
    one_writer=True,
    notes=(
        "one process at a time may write the file; a run opens it late and closes it early",
        "DuckDB keeps no length of a text: String[n] is checked at every load",
    ),
)
