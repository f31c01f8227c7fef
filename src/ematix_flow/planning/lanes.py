"""Chooses what carries the rows of a load: Arrow batches from driver to driver, or Spark's own rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ematix_flow.contract.lane import Carried
from ematix_flow.declare.types import Column
from ematix_flow.families.arrow_shape import converts
from ematix_flow.foundation.errors import PlanError

ARROW = "arrow"
DIRECT = "direct"
SPARK = "spark"
INSIDE = "database"
WITHOUT_SPARK = (DIRECT, INSIDE)
DIRECT_ROWS = 5_000_000
SMALL_ROWS = 200_000


@dataclass(frozen=True)
class LaneChoice:
    """The lane and why."""

    lane: str
    reason: str


def choose_lane(
    *, force: str | None, obstacle: str | None, needs_spark: str | None, too_many: str | None
) -> LaneChoice:
    """Arrow wherever nothing stands in its way, and in this process where few rows are not worth a start of Spark."""
    if force == SPARK:
        return LaneChoice(SPARK, "forced")
    refused = obstacle or (needs_spark if force == DIRECT else None)
    if force is not None and refused is not None:
        raise PlanError(f'force_lane="{force}" is not possible: {refused}', hint="remove force_lane")
    if obstacle is not None:
        return LaneChoice(SPARK, obstacle)
    if force is not None:
        return LaneChoice(force, "forced")
    reason = needs_spark or too_many
    if reason is None:
        return LaneChoice(DIRECT, "read, cast and written here, part by part: Spark is not started for so few rows")
    return LaneChoice(ARROW, f"read, cast and written row by row; {reason}")


def too_many_rows(estimated: int | None) -> str | None:
    """Why a load is not for one process, None when it is."""
    if estimated is None:
        return "nobody knows how many rows"
    return f"more than {DIRECT_ROWS:,} rows" if estimated > DIRECT_ROWS else None


def is_small(estimated: int) -> bool:
    """Whether so little is to be done that a session is better started for a short life."""
    return estimated <= SMALL_ROWS


def shape_obstacle(given: Carried, columns: Sequence[Column]) -> str | None:
    """The first column that only Spark can bring into its declared type."""
    types = dict(given)
    for column in columns:
        if column.name not in types:
            return f"{column.name} is not a column of the source"
        if not converts(types[column.name], column.type):
            return f"Spark casts {column.name} from {types[column.name]} to {column.type}"
    return None
