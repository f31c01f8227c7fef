"""One streaming frame of all sources of a stream, and the rows of a micro-batch by their source."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

from ematix_flow.families.lake.session import quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ORIGIN = "_flow_origin"


def together(frames: Sequence[DataFrame]) -> DataFrame:
    """Return the union of all frames, in their order, which is that of the offset log."""
    from pyspark.sql import functions as f

    if len(frames) == 1:
        return frames[0]
    marked = [frame.withColumn(ORIGIN, f.lit(number)) for number, frame in enumerate(frames)]
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), marked)


def of_source(frame: DataFrame, number: int, columns: Sequence[str] | None) -> DataFrame:
    """Return the rows of a micro-batch that came from one source, with its own columns where they are known."""
    if ORIGIN not in frame.columns:
        return frame
    rows = frame.where(f"{ORIGIN} = {number}").drop(ORIGIN)
    return rows.select(*map(quote, columns)) if columns is not None else rows


def in_session_of(frame: DataFrame, rows: DataFrame) -> DataFrame:
    """Return the rows as a frame of another frame's session; the query of a stream has a session of its own."""
    spark, own = frame.sparkSession, rows.sparkSession
    if own._jsparkSession.equals(spark._jsparkSession):
        return rows
    view = f"flow_rows_{uuid.uuid4().hex}"
    rows.createOrReplaceGlobalTempView(view)
    try:
        return spark.table(f"global_temp.{view}")
    finally:
        own.catalog.dropGlobalTempView(view)
