"""Runs parts of a source in Spark's tasks: as a dataframe, or straight into a sink's writer."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextvars import copy_context
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ematix_flow.contract.lane import ArrowParts, Carried
from ematix_flow.families import progress
from ematix_flow.families.arrow_normalize import normalized
from ematix_flow.families.arrow_shape import shaped
from ematix_flow.families.carry import carried_error, carrying
from ematix_flow.families.frames import spark_schema
from ematix_flow.families.small_arrow import row_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def frame_of(parts: ArrowParts, spark: SparkSession) -> DataFrame:
    """The parts as a lazy dataframe, one task each."""
    read = parts.read

    def rows(numbers: Iterator[Any]) -> Iterator[Any]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from read(number)

    return _numbers(parts, spark).mapInArrow(carrying(rows, parts.translate), spark_schema(list(parts.columns)))


@dataclass(frozen=True)
class Flow:
    """A part is read, normalized, given the wanted types and handed to the sink's function.

    `given` are the columns after the normalizers, which are DuckDB's query, where there are any.
    """

    parts: ArrowParts
    normalizing: str | None
    given: Carried
    wanted: Carried

    def into(self, func: Callable[[Iterator[Any]], Iterator[Any]]) -> Callable[[Iterable[Any]], Iterator[Any]]:
        """The whole work of a task, as a function of the numbers of its parts."""
        read, translate, columns, query = self.parts.read, self.parts.translate, self.parts.columns, self.normalizing
        given, wanted = self.given, self.wanted
        counter = progress.Counter.of(progress.READ)

        def work(numbers: Iterable[Any]) -> Iterator[Any]:
            failed: list[Exception] = []

            def found() -> Iterator[Any]:
                for batch in numbers:
                    for number in batch.column(0).to_pylist():
                        yield from read(number)

            def rows() -> Iterator[Any]:
                try:
                    yield from counter.passing(found())
                except Exception as exc:  # the sink's driver library would keep nothing but its text
                    failed.append(exc)
                    raise

            def ready() -> Iterator[Any]:
                try:
                    for batch in normalized(rows(), query, columns) if query else rows():
                        yield shaped(batch, given, wanted)
                except Exception as exc:
                    failed.append(exc)
                    raise

            try:
                yield from func(ready())
            except Exception:
                if failed:
                    raise carried_error(failed[0], translate) from failed[0]
                raise

        return work


@dataclass(frozen=True)
class SparkTasks:
    """One task of Spark's per part."""

    flow: Flow
    spark: SparkSession

    def mapInArrow(self, func: Callable[[Iterator[Any]], Iterator[Any]], schema: str) -> DataFrame:  # noqa: N802
        """Lazy, as everything of Spark's."""
        return _numbers(self.flow.parts, self.spark).mapInArrow(self.flow.into(func), schema)


class _Stopped(Exception):
    """A part that is given up because another one has failed."""


@dataclass(frozen=True)
class OwnTasks:
    """One thread of this process per part: drivers and Arrow do the work, and they leave Python's lock alone."""

    flow: Flow

    def mapInArrow(self, func: Callable[[Iterator[Any]], Iterator[Any]], schema: str) -> OwnTasks._Outcome:  # noqa: N802
        """The same function over the same batches."""
        count = self.flow.parts.count
        stop = threading.Event()
        work = replace(self.flow, parts=replace(self.flow.parts, read=_until(stop, self.flow.parts.read))).into(func)
        if count == 1:
            return self._Outcome(_rows(work, 0))
        with ThreadPoolExecutor(min(count, os.cpu_count() or 2), thread_name_prefix="part") as pool:
            running = [pool.submit(copy_context().run, _rows, work, number) for number in range(count)]
            try:
                wait(running, return_when=FIRST_EXCEPTION)
                failed = [item.exception() for item in running if item.done() and item.exception() is not None]
                if failed:
                    raise next((error for error in failed if not _gave_way(error)), failed[0])  # type: ignore[misc]
            except BaseException:
                stop.set()
                raise
        return self._Outcome([told for item in running for told in item.result()])

    @dataclass(frozen=True)
    class _Outcome:
        """What the function gave, as a dataframe would."""

        rows: list[dict[str, Any]]

        def collect(self) -> list[dict[str, Any]]:
            return self.rows


def _until(stop: threading.Event, read: Callable[[int], Iterator[Any]]) -> Callable[[int], Iterator[Any]]:
    def reading(number: int) -> Iterator[Any]:
        for batch in read(number):
            if stop.is_set():
                raise _Stopped
            yield batch

    return reading


def _rows(work: Callable[[Iterable[Any]], Iterator[Any]], number: int) -> list[dict[str, Any]]:
    return [told for batch in work([row_batch({"part": number})]) for told in batch.to_pylist()]


def _gave_way(error: BaseException | None) -> bool:
    return isinstance(error, _Stopped) or isinstance(error and error.__cause__, _Stopped)


def _numbers(parts: ArrowParts, spark: SparkSession) -> DataFrame:
    return spark.range(0, parts.count, 1, parts.count).toDF("part")
