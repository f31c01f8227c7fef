"""Delta Lake on S3 through the deltalake package, which shares no code with Spark's."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaProtocolError
from pyspark.sql import SparkSession

from ematix_flow import DeltaS3Connection
from ematix_flow.dataplane.type_mapping import arrow_schema, pairs
from ematix_flow.declare.table import TableSpec
from tests.harness.base import Harness, Row
from tests.harness.buckets import TestBucket
from tests.services.object_stores import PLACE


def open_system(name: str, url: str) -> DeltaS3Harness:
    """A lake of its own."""
    return DeltaS3Harness(TestBucket.at(url, "delta"))


class DeltaS3Harness(Harness):
    """Delta tables below a prefix."""

    name = "delta-s3"
    backend = "delta_s3"

    def __init__(self, bucket: TestBucket) -> None:
        self.bucket = bucket
        self._connection = DeltaS3Connection(name="contract_delta_s3", **bucket.fields)

    @property
    def connection(self) -> DeltaS3Connection:
        return self._connection

    def where(self, schema: str, table: str, scheme: str = "s3") -> str:
        """The table's address."""
        return f"{scheme}://{PLACE}/{self.bucket.prefix}/{schema}/{table}"

    def seed(self, table: TableSpec, rows: Sequence[Row]) -> None:
        made = pa.Table.from_pylist(list(rows), schema=arrow_schema(pairs(table.columns)))
        write_deltalake(
            self.where(table.schema, table.name), made, mode="overwrite", schema_mode="overwrite",
            storage_options=self.bucket.storage_options,
        )  # fmt: skip

    def raw_rows(self, schema: str, table: str) -> list[Row]:
        try:
            opened = DeltaTable(self.where(schema, table), storage_options=self.bucket.storage_options)
            found: list[Row] = opened.to_pyarrow_table().to_pylist()
        except DeltaProtocolError:  # a widened column: only Spark's own reader knows that feature
            spark = SparkSession.getActiveSession()
            found = spark.read.format("delta").load(self.where(schema, table, "s3a")).toArrow().to_pylist()
        return found
