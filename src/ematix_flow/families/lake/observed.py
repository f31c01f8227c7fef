"""Aggregates over rows that are being written, computed by the write itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ematix_flow.dataplane.spark_session import is_sail_session
from ematix_flow.foundation.lazy_imports import f

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Results = Callable[[], Mapping[str, Any]]


def observed(frame: DataFrame, questions: Sequence[str], again: Callable[[], DataFrame]) -> tuple[DataFrame, Results]:
    """Return the frame and a function that gives the results of the aggregates after the frame has been written.

    Where the write did not deliver them, `again` returns the same rows for one query: Sail has no Observation, and a Spark
    Connect server waits 100 ms for Spark's listeners and then answers without results, as it does on a busy machine.
    """
    from pyspark.sql import Observation

    def queried() -> Mapping[str, Any]:
        return again().selectExpr(*questions).collect()[0].asDict()

    if is_sail_session(frame.sparkSession):
        return frame, queried
    observation = Observation()
    return frame.observe(observation, *map(f.expr, questions)), lambda: observation.get or queried()
