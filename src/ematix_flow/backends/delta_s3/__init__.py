"""Delta Lake in a bucket: as on a local disk, with every commit a conditional write of the table's log."""

from __future__ import annotations

from ematix_flow.backends.delta.client import DeltaClient
from ematix_flow.backends.delta.ddl import DeltaDdl
from ematix_flow.backends.delta.sink import DeltaSink
from ematix_flow.backends.delta.source import DeltaSource
from ematix_flow.backends.delta.stream import DeltaStream
from ematix_flow.contract.backend import EFFECTIVELY_ONCE, Backend
from ematix_flow.declare.connections import DeltaS3Connection
from ematix_flow.storage.s3_spark import sail_limitation

backend = Backend(
    name="delta_s3",
    title="Delta Lake on S3",
    connection_types=(DeltaS3Connection,),
    dialect="spark",
    is_lake=True,
    strategies=frozenset({"append", "truncate", "merge", "scd2"}),
    takes_changes=True,
    published_by="one Delta commit",
    jars=("delta", "s3a"),
    extra="s3",
    batch_source=DeltaSource,
    batch_sink=DeltaSink,
    ddl=DeltaDdl,
    client=DeltaClient,
    stream_source=DeltaStream,
    stream_delivery=EFFECTIVELY_ONCE,
    lacks_on_sail=sail_limitation,
    notes=(
        "queries are Spark SQL",
        "primary keys are not enforced on append",
        "rows are carried by Spark",
        "the server must know conditional writes",
    ),
)
