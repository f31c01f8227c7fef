"""The Delta source: Spark SQL on the tables below the connection's path."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ematix_flow.backends.delta.log_statistics import files_in_log
from ematix_flow.backends.delta.snapshot import snapshot_of
from ematix_flow.backends.delta.table import DeltaTable
from ematix_flow.declare.connections import DeltaLocalConnection, DeltaS3Connection
from ematix_flow.families.lake.source import LakeSource
from ematix_flow.sql.joins.file_statistics import TableFiles
from ematix_flow.storage.paths import LakePath, LakeRoot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class DeltaSource(LakeSource):
    """A reader of queries on one Delta lake, each from one snapshot of every table."""

    what = "a Delta table"

    def __init__(self, connection: DeltaLocalConnection | DeltaS3Connection) -> None:
        super().__init__(connection.name, LakeRoot.of(connection))

    def find(self, path: LakePath) -> LakePath | None:
        return path if DeltaTable(path).exists else None

    def open(self, path: LakePath) -> DataFrame:
        return DeltaTable(path).read()

    def files(self, path: LakePath) -> TableFiles | None:
        snapshot = snapshot_of(path, with_files=True)
        return files_in_log(snapshot) if snapshot is not None else None

    def rows(self, path: LakePath) -> int | None:
        return DeltaTable(path).read().count()  # computed from the log's statistics
