"""Reading Delta: Spark SQL over the tables below the connection's path."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ematix_flow.backends.delta.table import DeltaTable
from ematix_flow.families.lake.place import LakePath, Place
from ematix_flow.families.lake.sql_source import LakeSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ematix_flow.declare.connections import DeltaLocalConnection, DeltaS3Connection


class DeltaSource(LakeSource):
    """Reads queries of one Delta lake, each from one snapshot of every table."""

    what = "a Delta table"

    def __init__(self, connection: DeltaLocalConnection | DeltaS3Connection) -> None:
        super().__init__(connection.name, Place.of(connection))

    def find(self, path: LakePath) -> LakePath | None:
        return path if DeltaTable(path).exists else None

    def open(self, path: LakePath) -> DataFrame:
        return DeltaTable(path).read()

    def rows(self, path: LakePath) -> int | None:
        return DeltaTable(path).read().count()  # answered from the log's statistics
