"""Chooses what carries the rows of a load through Spark: Arrow batches from driver to driver, or Spark's own rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ematix_flow.contract.lane import Carried
from ematix_flow.declare.types import Column
from ematix_flow.families.arrow_shape import converts
from ematix_flow.foundation.errors import PlanError

ARROW = "arrow"
SPARK = "spark"
INSIDE = "database"
LANES = (ARROW, SPARK)


@dataclass(frozen=True)
class LaneChoice:
    """The lane and why."""

    lane: str
    reason: str


def choose_lane(*, force: str | None, obstacle: str | None) -> LaneChoice:
    """Arrow wherever nothing stands in its way."""
    if force == SPARK:
        return LaneChoice(SPARK, "forced")
    if obstacle is None:
        return LaneChoice(ARROW, "forced" if force == ARROW else "read, cast and write row by row")
    if force == ARROW:
        raise PlanError(f'force_lane="arrow" is not possible: {obstacle}', hint="remove force_lane")
    return LaneChoice(SPARK, obstacle)


def shape_obstacle(given: Carried, columns: Sequence[Column]) -> str | None:
    """The first column that only Spark can bring into its declared type."""
    types = dict(given)
    for column in columns:
        if column.name not in types:
            return f"{column.name} is not a column of the source"
        if not converts(types[column.name], column.type):
            return f"Spark casts {column.name} from {types[column.name]} to {column.type}"
    return None
