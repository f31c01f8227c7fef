"""Reads the parts of a source in Spark tasks: as a dataframe, or directly into a sink's writer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ematix_flow.contract.lane import ArrowParts, Carried
from ematix_flow.dataplane import progress
from ematix_flow.dataplane.arrow_casts import shape_batch
from ematix_flow.dataplane.arrow_normalize import normalize_batches
from ematix_flow.dataplane.task_errors import reading_task, to_carried_error
from ematix_flow.dataplane.type_mapping import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def frame_of(parts: ArrowParts, spark: SparkSession) -> DataFrame:
    """Return the parts as a lazy dataframe, one task per part."""
    read = parts.read

    def rows(numbers: Iterator[Any]) -> Iterator[Any]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from read(number)

    return _numbers(parts, spark).mapInArrow(reading_task(rows, parts.translate), spark_schema(list(parts.columns)))


@dataclass(frozen=True)
class ArrowFlow:
    """The work of a task: read a part, normalize it, cast it to the wanted types, pass it to the sink's function.

    `given` are the columns after the normalizers, which are a DuckDB query (`normalizing`) or None.
    """

    parts: ArrowParts
    normalizing: str | None
    given: Carried
    wanted: Carried

    def into(self, func: Callable[[Iterator[Any]], Iterator[Any]]) -> Callable[[Iterable[Any]], Iterator[Any]]:
        """Return the whole work of a task, as a function of batches with the numbers of its parts."""
        read, translate, columns, query = self.parts.read, self.parts.translate, self.parts.columns, self.normalizing
        input_columns, wanted = self.given, self.wanted
        counter = progress.TaskCounter.of(progress.READ)

        def work(numbers: Iterable[Any]) -> Iterator[Any]:
            failed: list[Exception] = []

            def found() -> Iterator[Any]:
                for batch in numbers:
                    for number in batch.column(0).to_pylist():
                        yield from read(number)

            def rows() -> Iterator[Any]:
                try:
                    yield from counter.passing(found())
                except Exception as exc:  # the sink's driver library would keep only its text
                    failed.append(exc)
                    raise

            def ready() -> Iterator[Any]:
                try:
                    for batch in normalize_batches(rows(), query, columns) if query else rows():
                        yield shape_batch(batch, input_columns, wanted)
                except Exception as exc:
                    failed.append(exc)
                    raise

            try:
                yield from func(ready())
            except Exception:
                if failed:
                    raise to_carried_error(failed[0], translate) from failed[0]
                raise

        return work


@dataclass(frozen=True)
class SparkTasks:
    """A `Tasks` that runs one Spark task per part."""

    flow: ArrowFlow
    spark: SparkSession

    def mapInArrow(self, func: Callable[[Iterator[Any]], Iterator[Any]], schema: str) -> DataFrame:  # noqa: N802
        """Return a lazy dataframe of the function's output."""
        return _numbers(self.flow.parts, self.spark).mapInArrow(self.flow.into(func), schema)


def _numbers(parts: ArrowParts, spark: SparkSession) -> DataFrame:
    return spark.range(0, parts.count, 1, parts.count).toDF("part")
