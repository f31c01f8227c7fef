"""Folders of Parquet, CSV, ORC or JSON-lines files in a bucket; every load is published by one conditional write."""

from __future__ import annotations

from ematix_flow.backends.files.ddl import FilesDdl
from ematix_flow.backends.files.sink import FilesSink
from ematix_flow.backends.files.source import FilesClient, FilesSource
from ematix_flow.backends.files.stream import FilesStream
from ematix_flow.contract.backend import EFFECTIVELY_ONCE, Backend
from ematix_flow.declare.connections import ObjectStoreS3Connection
from ematix_flow.storage.s3_spark import sail_limitation

backend = Backend(
    name="files_s3",
    title="Files on S3 (Parquet, CSV, ORC, JSON lines)",
    connection_types=(ObjectStoreS3Connection,),
    dialect="spark",
    is_lake=True,
    strategies=frozenset({"append", "truncate"}),
    published_by="one conditional write",
    jars=("s3a",),
    extra="s3",
    batch_source=FilesSource,
    batch_sink=FilesSink,
    ddl=FilesDdl,
    client=FilesClient,
    stream_source=FilesStream,
    stream_delivery=EFFECTIVELY_ONCE,
    lacks_on_sail=sail_limitation,
    notes=(
        "queries are Spark SQL",
        "a batch is the prefix flow_batch=<run>, and counts once its mark _commits/flow_batch=<run> is there",
        "readers that only list objects may see a batch of several files grow while it is copied",
        "primary keys are not enforced on append",
    ),
)
