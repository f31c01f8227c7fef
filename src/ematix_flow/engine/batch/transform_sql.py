"""Sources with the pipeline's `transform_sql` applied to their rows, which Spark runs in batch pipelines."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ematix_flow.contract.backend import BatchSource
from ematix_flow.contract.read import ReadPlan, SourceColumn
from ematix_flow.dataplane.spark_types import source_columns
from ematix_flow.dataplane.type_mapping import spark_schema
from ematix_flow.declare.types import ColumnType, Numeric, Text
from ematix_flow.engine.batch.context import RunContext
from ematix_flow.engine.sql.statement import Statement
from ematix_flow.foundation.errors import PlanError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class TransformedPlan(ReadPlan):
    """The plan of the source's own query, with the columns of the statement's result."""

    inner: ReadPlan | None = None


class TransformedSource:
    """A source with a statement applied; reads cannot be restricted, because the statement may need all rows."""

    def __init__(self, inner: BatchSource, statement: Statement, spark: Callable[[], SparkSession]) -> None:
        self._inner = inner
        self._statement = statement
        self._spark = spark

    def plan(self, query: str, *, parallelism: int) -> TransformedPlan:
        """Return the source's plan with the statement's columns."""
        return self.around(self._inner.plan(query, parallelism=parallelism))

    def around(self, inner: ReadPlan) -> TransformedPlan:
        """Return an existing plan with the statement's columns; raise the statement's errors."""
        spark = self._spark()
        with ExitStack() as open_until:
            empty = spark.createDataFrame([], spark_schema([(item.name, _carrier(item)) for item in inner.columns]))
            columns = source_columns(self._statement.frame(empty, {}, open_until).schema)
        names = [column.name.lower() for column in columns]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise PlanError(
                f"transform_sql gives more than one column called {', '.join(twice)}",
                where=self._statement.where,
                hint="name them apart with AS",
            )
        return TransformedPlan(
            inner.query,
            columns,
            inner.splits,
            inner.split_reason,
            inner.estimated_rows,
            inner.consistent,
            inner,
            joins=inner.joins,
        )

    def since(self, query: str, column: SourceColumn, value: str) -> str | None:
        """Return None, because a column of the result is not one of the source."""
        return None

    def read(self, plan: ReadPlan, spark: SparkSession, open_until: ExitStack) -> DataFrame:
        """Return the result of the statement over the source's rows."""
        own = plan if isinstance(plan, TransformedPlan) else self.plan(plan.query, parallelism=plan.splits)
        if own.inner is None:
            raise AssertionError("a transformed plan has an inner one")
        return self._statement.frame(self._inner.read(own.inner, spark, open_until), {}, open_until)


def statement_of(context: RunContext) -> Statement | None:
    """Return the pipeline's statement, None if it has none; its functions are dropped when the run ends."""
    spec = context.spec
    if spec.transform_sql is None:
        return None
    statement = Statement(spec.transform_sql, dialect=spec.dialect, functions=spec.functions, where=spec.where)
    context.open_until.callback(statement.registered.unregister)
    return statement


def transform_frame(context: RunContext, frame: DataFrame) -> DataFrame:
    """Return the user's dataframe with the pipeline's statement applied, if it has one."""
    statement = statement_of(context)
    return statement.frame(frame, {}, context.open_until) if statement is not None else frame


def _carrier(column: SourceColumn) -> ColumnType:
    return column.type or (Numeric(38, 18) if column.native == "numeric" else Text())
