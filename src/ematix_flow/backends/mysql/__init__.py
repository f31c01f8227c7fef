"""MySQL and MariaDB: batch source and sink, Arrow reads by key ranges, bulk-loaded stages, effectively-once writes."""

from __future__ import annotations

from ematix_flow.backends.mysql.ddl import MySqlDdl
from ematix_flow.backends.mysql.dialect import MySqlDialect
from ematix_flow.backends.mysql.session import connect, identity
from ematix_flow.backends.mysql.sink import MySqlSink
from ematix_flow.backends.mysql.source import MySqlSource
from ematix_flow.contract.backend import Backend, TaskResources
from ematix_flow.declare.connections import MySQLConnection

backend = Backend(
    name="mysql",
    title="MySQL and MariaDB",
    connection_types=(MySQLConnection,),
    dialect="mysql",
    strategies=frozenset({"append", "truncate", "merge", "scd2"}),
    takes_changes=True,
    extra="mysql",
    batch_source=MySqlSource,
    batch_sink=MySqlSink,
    ddl=MySqlDdl,
    client=connect,
    sql=lambda _: MySqlDialect(),
    identity=identity,
    tasks_reading=TaskResources(("connectorx", "pymysql")),
    tasks_writing=TaskResources(("pymysql",)),
    notes=(
        "connections cannot share a snapshot: the parts of a parallel read may see different moments",
        "stages are filled with LOAD DATA LOCAL where the server allows it, with long INSERT statements elsewhere",
        "Timestamp and TimestampTZ are both DATETIME(6), in UTC",
        "JSON is kept as LONGTEXT, JSONB as JSON",
        "NaN and infinity cannot be stored",
    ),
)
