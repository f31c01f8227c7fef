"""Folders of Parquet, CSV, ORC or JSON-lines files on a local disk; every load is a folder, published by one rename."""

from __future__ import annotations

from ematix_flow.backends.files.ddl import FilesDdl
from ematix_flow.backends.files.sail_limits import sail_limitation
from ematix_flow.backends.files.sink import FilesSink
from ematix_flow.backends.files.source import FilesClient, FilesSource
from ematix_flow.backends.files.stream import FilesStream
from ematix_flow.contract.backend import EFFECTIVELY_ONCE, Backend, TaskResources
from ematix_flow.declare.connections import ObjectStoreLocalConnection
from ematix_flow.storage.paths import storage_folders

backend = Backend(
    name="files",
    title="Files (Parquet, CSV, ORC, JSON lines)",
    connection_types=(ObjectStoreLocalConnection,),
    dialect="spark",
    is_lake=True,
    strategies=frozenset({"append", "truncate"}),
    published_by="one rename",
    batch_source=FilesSource,
    batch_sink=FilesSink,
    ddl=FilesDdl,
    client=FilesClient,
    tasks_reading=TaskResources(folders=storage_folders),
    tasks_writing=TaskResources(folders=storage_folders),
    stream_source=FilesStream,
    stream_delivery=EFFECTIVELY_ONCE,
    lacks_on_sail=sail_limitation,
    notes=(
        "queries are Spark SQL",
        "a batch is the folder flow_batch=<run>",
        "primary keys are not enforced on append",
    ),
)
