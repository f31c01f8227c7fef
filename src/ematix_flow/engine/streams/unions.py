"""Several sources as one stream: their rows under the same columns, each with the number of its source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

from ematix_flow.families.lake.session import quote
from ematix_flow.families.messages.decode import SOURCE
from ematix_flow.families.messages.widening import projected, quoted, same_shape, widen_structs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

ORIGIN = "origin"
"""The field of `_source` with the number of every source after the first: positions in two brokers may be equal."""


def from_source(rows: DataFrame, number: int) -> DataFrame:
    """Return the rows of one of several sources, with its number in `_source`; NULL is the first source."""
    if SOURCE not in rows.columns:
        return rows
    fields = [f"{SOURCE}.{quote(name)}" for name in source_fields(rows) if name != ORIGIN]
    marked = f"struct({', '.join(fields)}, nullif({number}, 0) AS {ORIGIN}) AS {SOURCE}"
    return rows.selectExpr(*(marked if name == SOURCE else quote(name) for name in rows.columns))


def source_fields(rows: DataFrame) -> Sequence[str]:
    """Return the fields of `_source`; none where the rows have no `_source`."""
    kind: Any = rows.schema[SOURCE].dataType if SOURCE in rows.columns else None
    return tuple(kind.fieldNames()) if kind is not None else ()


def origin_of(place: Mapping[str, Any]) -> int:
    """Return the number of the source that a dead letter came from, by its position."""
    return int(place.get(ORIGIN) or 0)


def aligned(frames: Sequence[DataFrame]) -> list[DataFrame]:
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
    return [widened(frame, wide) for frame in alike]


def united(frames: Sequence[DataFrame]) -> DataFrame:
    """Return the rows of frames with the same columns as one frame."""
    return reduce(lambda one, other: one.union(other), frames)


def widened(frame: DataFrame, wide: StructType) -> DataFrame:
    """Return the frame with the columns of `wide`, in its types."""
    from pyspark.sql import functions as f

    if same_shape(frame.schema, wide):
        return frame
    kinds = {field.name: field.dataType for field in frame.schema.fields}
    made = [
        projected(f.col(quoted(field.name)), kinds[field.name], field.dataType)
        if field.name in kinds
        else f.lit(None).cast(field.dataType)
        for field in wide.fields
    ]
    return frame.select(*(column.alias(field.name) for column, field in zip(made, wide.fields, strict=True)))
