"""PostgreSQL: batch source and sink, Arrow reads from one snapshot, COPY stages, effectively-once writes."""

from __future__ import annotations

from ematix_flow.backends.postgres.ddl import PostgresDdl
from ematix_flow.backends.postgres.dialect import PostgresDialect
from ematix_flow.backends.postgres.session import connect, identity
from ematix_flow.backends.postgres.sink import PostgresSink
from ematix_flow.backends.postgres.source import PostgresSource
from ematix_flow.backends.postgres.state import PostgresStateBackend
from ematix_flow.contract.backend import Backend, TaskResources
from ematix_flow.declare.connections import PostgresConnection

backend = Backend(
    name="postgres",
    title="PostgreSQL",
    connection_types=(PostgresConnection,),
    dialect="postgres",
    strategies=frozenset({"append", "truncate", "merge", "scd2"}),
    takes_changes=True,
    extra="postgres",
    batch_source=PostgresSource,
    batch_sink=PostgresSink,
    ddl=PostgresDdl,
    client=connect,
    sql=lambda _: PostgresDialect(),
    identity=identity,
    state_backend=PostgresStateBackend,
    tasks_reading=TaskResources(("adbc_driver_postgresql",)),
    tasks_writing=TaskResources(("adbc_driver_postgresql",)),
    notes=("parallel reads share one exported snapshot", "stages are filled with binary COPY"),
)
