"""Chooses the format of the rows of a load: Arrow batches from driver library to driver library, or Spark rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ematix_flow.contract.lane import Carried
from ematix_flow.dataplane.arrow_casts import is_convertible
from ematix_flow.declare.types import Column
from ematix_flow.foundation.errors import PlanError

ARROW = "arrow"
SPARK = "spark"
INSIDE = "database"
SMALL_ROWS = 200_000


@dataclass(frozen=True)
class LaneChoice:
    """The chosen lane and the reason."""

    lane: str
    reason: str


def choose_lane(*, force: str | None, obstacle: str | None) -> LaneChoice:
    """Choose Arrow unless something needs Spark's rows; raise PlanError where the forced lane is not possible."""
    if force == SPARK:
        return LaneChoice(SPARK, "forced")
    if obstacle is not None and force is not None:
        raise PlanError(f'force_lane="{force}" is not possible: {obstacle}', hint="remove force_lane")
    if obstacle is not None:
        return LaneChoice(SPARK, obstacle)
    return LaneChoice(ARROW, "forced" if force is not None else "read, cast and written row by row, in Spark's tasks")


def is_small(estimated: int) -> bool:
    """Return whether the estimated rows are few enough for a short-lived session with a quick start."""
    return estimated <= SMALL_ROWS


def shape_obstacle(input_columns: Carried, columns: Sequence[Column]) -> str | None:
    """Return why Spark must cast a column to its declared type (first such column), None if Arrow can cast all."""
    types = dict(input_columns)
    for column in columns:
        if column.name not in types:
            return f"{column.name} is not a column of the source"
        if not is_convertible(types[column.name], column.type):
            return f"Spark casts {column.name} from {types[column.name]} to {column.type}"
    return None
