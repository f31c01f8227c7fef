"""Runs functions over Arrow batches, and readers of streams, in Spark tasks."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ematix_flow.foundation import fault
from ematix_flow.foundation.lazy_imports import pa

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.datasource import DataSource, DataSourceStreamReader

Work = Callable[[Iterator[Any]], Iterator[Any]]


def in_tasks(tasks: Any, work: Work, schema: Any) -> Any:
    """Return `tasks.mapInArrow(work, schema)`.

    Spark resolves columns by their bare names and reads `a.b` as a field of `a`: such columns are numbered meanwhile.
    """
    names = list(getattr(tasks, "columns", ()))
    if not any("." in name or "`" in name for name in names):
        return tasks.mapInArrow(work, schema)

    def named(batches: Iterator[Any]) -> Iterator[Any]:
        return work(batch.rename_columns(names) for batch in batches)

    return tasks.toDF(*(f"c{number}" for number in range(len(names)))).mapInArrow(named, schema)


def attempt_number() -> int:
    """Return Spark's id of this task attempt; outside of a task, a random number."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return int(context.taskAttemptId()) if context is not None else secrets.randbits(62)


def watched(frame: DataFrame) -> DataFrame:
    """Return the same rows, with the fault point of tests that kill a run in the middle of its stage."""
    if not fault.is_armed("mid_stage"):
        return frame  # keeps the rows out of Python
    driver = os.getpid()

    def passing(batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            yield batch
            fault.point("mid_stage", victim=driver)

    passed: DataFrame = in_tasks(frame, passing, frame.schema)
    return passed


def on_arrow(function: Callable[[pa.Array], pa.Array], returns: Any) -> Callable[[Column], Column]:
    """Return a function of one Arrow column as a function of Spark columns."""
    from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined]  # missing from its stubs

    def applied(column: pa.Array) -> pa.Array:
        return function(column)

    # Spark derives the kind of the function from annotations that are types; in this module they are only text.
    applied.__annotations__ = {"column": pa.Array, "return": pa.Array}
    wrapped: Callable[[Column], Column] = arrow_udf(applied, returns)
    return wrapped


def stream_source(name: str, columns: str, reader: Callable[[], DataSourceStreamReader]) -> type[DataSource]:
    """Return a class for one stream: Spark registers classes, and options would show secrets in its plans.

    `columns` are DDL; `reader` makes the reader, and is pickled together with the class.
    """
    from pyspark.sql.datasource import DataSource

    class OneStream(DataSource):
        @classmethod
        def name(cls) -> str:
            return name

        def schema(self) -> str:
            return columns

        def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802  Spark's own name
            return reader()

    return OneStream
