"""Reading: one task runs the query, and gives Arrow batches to the lane that wants them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from ematix_flow.contract.lane import ArrowParts, ArrowSource, Carried
from ematix_flow.contract.read import ReadPlan, SourceColumn
from ematix_flow.dataplane.arrow_lane import frame_of
from ematix_flow.dataplane.type_mapping import arrow_schema
from ematix_flow.declare.types import Column, Text
from ematix_flow.foundation.errors import PlanError
from outside_db.connection import OutsideConnection
from outside_db.database import connect_existing, translate
from outside_db.dialect import OutsideDialect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SQL = OutsideDialect()


class OutsideSource(ArrowSource):
    """Queries on one database."""

    def __init__(self, connection: OutsideConnection) -> None:
        self._connection = connection

    def plan(self, query: str, *, parallelism: int) -> ReadPlan:
        query = query.strip().rstrip(";")
        with connect_existing(self._connection) as session:
            described = [(str(row[0]), str(row[1])) for row in session.rows(f"DESCRIBE {query}")]
        names = [name for name, _ in described]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise PlanError(f"the query gives more than one column called {', '.join(twice)}", hint="use AS")
        columns = tuple(SourceColumn(name, native, _SQL.parse_type(native) or Text()) for name, native in described)
        return ReadPlan(query, columns, 1, "Outside is read by one task")

    def since(self, query: str, column: SourceColumn, value: str) -> str | None:
        if column.type is None:
            return None
        return _SQL.since(query.strip().rstrip(";"), column.name, _SQL.watermark_literal(value, column.type))

    def read(self, plan: ReadPlan, spark: SparkSession, open_until: ExitStack) -> DataFrame:
        return frame_of(self.arrow_parts(plan, open_until), spark)

    def arrow_columns(self, plan: ReadPlan) -> Carried:
        return tuple((column.name, column.type or Text()) for column in plan.columns)

    def arrow_parts(self, plan: ReadPlan, open_until: ExitStack) -> ArrowParts:
        columns = self.arrow_columns(plan)
        return ArrowParts(1, columns, _reader(self._connection, plan.query, columns), translate)


def _reader(connection: OutsideConnection, query: str, columns: Carried) -> Callable[[int], Iterator[Any]]:
    as_text = ("text", "json", "jsonb", "uuid")
    chosen = ", ".join(
        f"CAST({_SQL.quote(name)} AS {'VARCHAR' if kind.kind in as_text else _SQL.type_sql(Column(kind))})"
        for name, kind in columns
    )

    def read(_: int) -> Iterator[Any]:
        schema = arrow_schema(list(columns))
        with connect_existing(connection) as session:
            answer = session.raw.sql(f"SELECT {chosen} FROM (\n{query}\n) AS q")
            for batch in answer.to_arrow_reader(10_000):
                arrays = [value.cast(field.type) for value, field in zip(batch.columns, schema, strict=True)]
                yield type(batch).from_arrays(arrays, schema=schema)

    return read
