"""Delta Lake through the deltalake package, which shares no code with Spark's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaProtocolError
from pyspark.sql import SparkSession

from ematix_flow import DeltaLocalConnection
from ematix_flow.dataplane.type_mapping import arrow_schema, pairs
from ematix_flow.declare.table import TableSpec
from tests.harness.base import Harness, Row


def open_system(name: str, folder: Path) -> DeltaHarness:
    """A lake of its own."""
    return DeltaHarness(folder / "lake")


class DeltaHarness(Harness):
    """A folder of Delta tables."""

    name = "delta"
    backend = "delta"

    def __init__(self, root: Path) -> None:
        self.root = root
        self._connection = DeltaLocalConnection(name="contract_delta", path=str(root))

    @property
    def connection(self) -> DeltaLocalConnection:
        return self._connection

    def seed(self, table: TableSpec, rows: Sequence[Row]) -> None:
        made = pa.Table.from_pylist(list(rows), schema=arrow_schema(pairs(table.columns)))
        write_deltalake(str(self.root / table.schema / table.name), made, mode="overwrite", schema_mode="overwrite")

    def raw_rows(self, schema: str, table: str) -> list[Row]:
        path = str(self.root / schema / table)
        try:
            found: list[Row] = DeltaTable(path).to_pyarrow_table().to_pylist()
        except DeltaProtocolError:  # a widened column: only Spark's own reader knows that feature
            found = SparkSession.getActiveSession().read.format("delta").load(path).toArrow().to_pylist()
        return found
