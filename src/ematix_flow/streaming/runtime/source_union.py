"""Unions the sources of a stream and separates their rows again."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

from ematix_flow.messages.decode import SOURCE
from ematix_flow.messages.type_widening import project_value, quoted, same_shape, widen_structs
from ematix_flow.sql.spark_text import quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

SOURCE_NUMBER = "_flow_origin"


def union_sources(frames: Sequence[DataFrame]) -> DataFrame:
    """Return the union of all frames, in their order, which is that of the offset log."""
    from pyspark.sql import functions as f

    if len(frames) == 1:
        return frames[0]
    marked = [frame.withColumn(SOURCE_NUMBER, f.lit(number)) for number, frame in enumerate(frames)]
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), marked)


def rows_of_source(frame: DataFrame, number: int, columns: Sequence[str] | None) -> DataFrame:
    """Return the rows of a micro-batch that came from one source, with its own columns where they are known."""
    if SOURCE_NUMBER not in frame.columns:
        return frame
    rows = frame.where(f"{SOURCE_NUMBER} = {number}").drop(SOURCE_NUMBER)
    return rows.select(*map(quote, columns)) if columns is not None else rows


def in_same_session(frame: DataFrame, rows: DataFrame) -> DataFrame:
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


ORIGIN_FIELD = "origin"
"""The field of `_source` with the number of every source after the first: positions in two brokers may be equal."""


def with_source_number(rows: DataFrame, number: int) -> DataFrame:
    """Return the rows of one of several sources, with its number in `_source`; NULL is the first source."""
    if SOURCE not in rows.columns:
        return rows
    fields = [f"{SOURCE}.{quote(name)}" for name in source_fields(rows) if name != ORIGIN_FIELD]
    marked = f"struct({', '.join(fields)}, nullif({number}, 0) AS {ORIGIN_FIELD}) AS {SOURCE}"
    return rows.selectExpr(*(marked if name == SOURCE else quote(name) for name in rows.columns))


def source_fields(rows: DataFrame) -> Sequence[str]:
    """Return the fields of `_source`; none where the rows have no `_source`."""
    kind: Any = rows.schema[SOURCE].dataType if SOURCE in rows.columns else None
    return tuple(kind.fieldNames()) if kind is not None else ()


def origin_of(place: Mapping[str, Any]) -> int:
    """Return the number of the source that a dead letter came from, by its position."""
    return int(place.get(ORIGIN_FIELD) or 0)


def align_columns(frames: Sequence[DataFrame]) -> list[DataFrame]:
    """Return every frame with the columns of all, in one order.

    A column that a source does not have is NULL there. One that has several types takes the narrowest type that holds
    all of them, which is text where no other does. Names that differ only in case are one column, written as the first
    source writes it.
    """
    names: dict[str, str] = {}
    alike = []
    for frame in frames:
        shown = [names.setdefault(name.lower(), name) for name in frame.columns]
        alike.append(frame if shown == frame.columns else frame.toDF(*shown))
    wide = reduce(widen_structs, (frame.schema for frame in alike))
    return [widen_to(frame, wide) for frame in alike]


def union_aligned(frames: Sequence[DataFrame]) -> DataFrame:
    """Return the rows of frames with the same columns as one frame."""
    return reduce(lambda one, other: one.union(other), frames)


def widen_to(frame: DataFrame, wide: StructType) -> DataFrame:
    """Return the frame with the columns of `wide`, in its types."""
    from pyspark.sql import functions as f

    if same_shape(frame.schema, wide):
        return frame
    kinds = {field.name: field.dataType for field in frame.schema.fields}
    selected = [
        project_value(f.col(quoted(field.name)), kinds[field.name], field.dataType)
        if field.name in kinds
        else f.lit(None).cast(field.dataType)
        for field in wide.fields
    ]
    return frame.select(*(column.alias(field.name) for column, field in zip(selected, wide.fields, strict=True)))
