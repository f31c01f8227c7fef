"""What the contract suite needs of a system: a connection, a way to seed it, a way to read it back by its own client."""

from __future__ import annotations

import json
import struct
import uuid
from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

from ematix_flow.declare.connections import Connection
from ematix_flow.declare.table import TableSpec
from ematix_flow.declare.types import ColumnType

Row = dict[str, Any]


class Harness(ABC):
    """One system under test."""

    name: str
    backend: str

    @property
    @abstractmethod
    def connection(self) -> Connection:
        """The connection pipelines use."""

    @abstractmethod
    def seed(self, table: TableSpec, rows: Sequence[Row]) -> None:
        """Create a plain table and fill it, by the system's own client."""

    @abstractmethod
    def raw_rows(self, schema: str, table: str) -> list[Row]:
        """Every row, by the system's own client."""

    def reference(self, table: TableSpec) -> str:
        """The table's name in the SQL of a source on this system."""
        return f"{table.schema}.{table.name}"

    def source_table(self, table: TableSpec) -> str:
        """The table's name in `source_table=`."""
        return table.qualified

    def rows(self, table: TableSpec) -> list[Row]:
        """Every row in canonical Python values of the declared types; other columns as they are."""
        return self.canonical_rows(table, self.raw_rows(table.schema, table.name))

    def canonical_rows(self, table: TableSpec, found: Sequence[Row]) -> list[Row]:
        """Rows in canonical Python values."""
        types = {column.name: column.type for column in table.columns}
        return [{name: canonical(value, types.get(name)) for name, value in row.items()} for row in found]

    def close(self) -> None:  # noqa: B027 - most systems have nothing to end
        """End what the harness started."""


def canonical(value: Any, column_type: ColumnType | None) -> Any:
    """One Python value per meaning, whatever the client returned."""
    if value is None or column_type is None:
        return value
    kind = column_type.kind
    if kind == "json":  # kept as it was written
        return value.decode() if isinstance(value, bytes) else value
    if kind == "jsonb":
        return json.loads(value) if isinstance(value, (str, bytes)) else value
    if kind == "uuid":
        return str(value if isinstance(value, uuid.UUID) else uuid.UUID(str(value)))
    if kind == "boolean":
        return bool(value)
    if kind == "bytes":
        return bytes(value)
    if kind == "float":  # clients show the shortest text that means this number
        return struct.unpack("f", struct.pack("f", value))[0]
    if kind == "numeric":
        return Decimal(str(value))
    if kind in ("timestamp", "timestamp_tz"):
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(str(value).replace("Z", "+00:00"))
        if kind == "timestamp":
            return moment.replace(tzinfo=None)
        return moment.replace(tzinfo=timezone.utc) if moment.tzinfo is None else moment.astimezone(timezone.utc)
    if kind == "date":
        return (
            value
            if isinstance(value, date) and not isinstance(value, datetime)
            else date.fromisoformat(str(value)[:10])
        )
    return value
