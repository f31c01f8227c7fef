"""What the sources of databases share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from ematix_flow.contract.lane import ArrowSource, Carried
from ematix_flow.contract.read import ReadPlan, SourceColumn
from ematix_flow.dataplane.arrow_lane import frame_of
from ematix_flow.declare.types import ColumnType, Text
from ematix_flow.families.sql.dialect import SqlDialect
from ematix_flow.foundation.errors import PlanError
from ematix_flow.sql.linear_query import without_semicolon

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class SqlSource(ArrowSource):
    """A reader of queries on one connection."""

    dialect: SqlDialect

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    @abstractmethod
    def plan(self, query: str, *, parallelism: int) -> ReadPlan:
        """Return the columns of the result and the parts of the read, without reading it."""

    def since(self, query: str, column: SourceColumn, value: str) -> str | None:
        """Return the query restricted to rows from a watermark on."""
        if column.type is None:
            return None
        literal = self.dialect.watermark_literal(value, column.type)
        return self.dialect.since(without_semicolon(query), column.name, literal)

    def read(self, plan: ReadPlan, spark: SparkSession, open_until: ExitStack) -> DataFrame:
        """Return the result as a frame, with one task per part."""
        return frame_of(self.arrow_parts(plan, open_until), spark)

    def arrow_columns(self, plan: ReadPlan) -> Carried:
        """Return the columns in the types of the Arrow transport."""
        return tuple((column.name, self.carrier(column)) for column in plan.columns)

    def carrier(self, column: SourceColumn) -> ColumnType:
        """Return the type in which a column is transported."""
        return column.type or Text()


def repeated_columns(names: Sequence[str]) -> PlanError:
    """Return the error for a query with several columns of the same name."""
    return PlanError(f"the query gives more than one column called {', '.join(names)}", hint="name them apart with AS")
