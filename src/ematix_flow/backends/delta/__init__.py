"""Delta Lake on a local disk: batch source and sink, and stream source. Every load is one commit with its token."""

from __future__ import annotations

from ematix_flow.backends.delta.client import DeltaClient
from ematix_flow.backends.delta.ddl import DeltaDdl
from ematix_flow.backends.delta.sail_tables import sail_limitation
from ematix_flow.backends.delta.sink import DeltaSink
from ematix_flow.backends.delta.source import DeltaSource
from ematix_flow.backends.delta.stream import DeltaStream
from ematix_flow.contract.backend import EFFECTIVELY_ONCE, Backend, TaskResources
from ematix_flow.declare.connections import DeltaLocalConnection
from ematix_flow.storage.paths import storage_folders

backend = Backend(
    name="delta",
    title="Delta Lake",
    connection_types=(DeltaLocalConnection,),
    dialect="spark",
    is_lake=True,
    strategies=frozenset({"append", "truncate", "merge", "scd2"}),
    takes_changes=True,
    published_by="one Delta commit",
    jars=("delta",),
    batch_source=DeltaSource,
    batch_sink=DeltaSink,
    ddl=DeltaDdl,
    client=DeltaClient,
    tasks_reading=TaskResources(folders=storage_folders),
    tasks_writing=TaskResources(folders=storage_folders),
    stream_source=DeltaStream,
    stream_delivery=EFFECTIVELY_ONCE,
    lacks_on_sail=sail_limitation,
    notes=("queries are Spark SQL", "primary keys are not enforced on append"),
)
