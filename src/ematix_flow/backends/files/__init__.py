"""Folders of Parquet, CSV, ORC or JSON-lines files on a local disk; every load is a folder, published by one rename."""

from __future__ import annotations

from ematix_flow.backends.files.ddl import FilesDdl
from ematix_flow.backends.files.native import lacks
from ematix_flow.backends.files.sink import FilesSink
from ematix_flow.backends.files.source import FilesClient, FilesSource
from ematix_flow.backends.files.stream import FilesStream
from ematix_flow.contract.backend import EFFECTIVELY_ONCE, Backend, TaskUse
from ematix_flow.declare.connections import ObjectStoreLocalConnection
from ematix_flow.families.lake.place import roots

backend = Backend(
    name="files",
    title="Files (Parquet, CSV, ORC, JSON lines)",
    connection_types=(ObjectStoreLocalConnection,),
    dialect="spark",
    strategies=frozenset({"append", "truncate"}),
    published_by="one rename",
    batch_source=FilesSource,
    batch_sink=FilesSink,
    ddl=FilesDdl,
    client=FilesClient,
    tasks_reading=TaskUse(folders=roots),
    tasks_writing=TaskUse(folders=roots),
    stream_source=FilesStream,
    stream_delivery=EFFECTIVELY_ONCE,
    lacks_on_sail=lacks,
    notes=(
        "queries are Spark SQL",
        "a batch is the folder flow_batch=<run>",
        "primary keys are not enforced on append",
    ),
)
