"""The base of windows and sessions: groups and aggregations under reserved names, which no column of the user has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from ematix_flow.declare.streams.parts import REOPEN, Window
from ematix_flow.foundation.errors import DataError, MissingColumn
from ematix_flow.foundation.names import did_you_mean
from ematix_flow.sql.spark_text import quote
from ematix_flow.streaming.state.aggregates import WindowAggregate
from ematix_flow.streaming.state.operator import AT, BATCH

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

START = "_flow_start"
END = "_flow_end"


@dataclass(frozen=True)
class GroupedOperator:
    """An operator that aggregates the rows of one group and one interval."""

    spec: Window

    @property
    def keys(self) -> tuple[str, ...]:
        """Return the columns of `group_by` in the state."""
        return tuple(f"_flow_key{number}" for number in range(len(self.spec.group_by)))

    @property
    def aggregates(self) -> tuple[WindowAggregate, ...]:
        """Return the aggregations."""
        return tuple(WindowAggregate(item, number) for number, item in enumerate(self.spec.aggregations))

    @property
    def reopens(self) -> bool:
        """Return whether emitted windows may be emitted again."""
        return self.spec.late_data == REOPEN

    @property
    def lateness(self) -> int:
        """Return how long an emitted window can still be changed, in microseconds."""
        return micros(self.spec.allowed_lateness_ms) if self.reopens else 0

    def inputs(self, rows: Sequence[DataFrame]) -> DataFrame:
        """Return groups, aggregated columns and `AT` of the rows of all sources; a source may lack some columns."""
        frame = reduce(lambda all_rows, more: all_rows.unionByName(more, allowMissingColumns=True), rows)
        wanted = [*zip(self.spec.group_by, self.keys, strict=True)]
        wanted += [(fold.spec.column, fold.input_column) for fold in self.aggregates if fold.spec.column is not None]
        for name, _ in wanted:
            if name not in frame.columns:
                place = "group_by" if name in self.spec.group_by else "an Aggregation"
                columns = [column for column in frame.columns if column != AT]
                raise MissingColumn(
                    f"{place} of the window names {name!r}, which the rows do not have",
                    hint=did_you_mean(name, columns),
                )
        return frame.selectExpr(AT, *(f"{quote(name)} AS {ours}" for name, ours in wanted))

    def partial(self, rows: DataFrame, *by: str, **also: str) -> DataFrame:
        """Aggregate rows with the columns of `given`, by group and by the named internal columns."""
        types = {field.name: field.dataType for field in rows.schema.fields}
        steps = [f"{sql} AS {name}" for name, sql in also.items()]
        steps += [f"{fold.partial(types.get(fold.input_column))} AS {fold.name}" for fold in self.aggregates]
        return _grouped(rows, (*self.keys, *by), steps)

    def merged(self, state: DataFrame, *by: str, **also: str) -> DataFrame:
        """Merge partials of the same group, with the last micro-batch that touched them."""
        types = {field.name: field.dataType for field in state.schema.fields}
        steps = [f"{sql} AS {name}" for name, sql in also.items()]
        steps += [f"{fold.merged(types[fold.name])} AS {fold.name}" for fold in self.aggregates]
        return _grouped(state, (*self.keys, *by), [*steps, f"max({BATCH}) AS {BATCH}"])

    def finished(self, merged: DataFrame, *times: str) -> DataFrame:
        """Return the columns that targets get: groups, those in `times`, and values."""
        types = {field.name: field.dataType for field in merged.schema.fields}
        groups = [f"{ours} AS {quote(name)}" for ours, name in zip(self.keys, self.spec.group_by, strict=True)]
        values = [f"{fold.final(types[fold.name])} AS {quote(fold.spec.as_)}" for fold in self.aggregates]
        return merged.selectExpr(*groups, *times, *values)

    def times(self, start: str, end: str) -> tuple[str, str]:
        """Return SQL for the columns with the start and the end of a window."""
        names = (self.spec.window_start_column, self.spec.window_end_column)
        first, last = (
            f"timestamp_micros({sql}) AS {quote(name)}" for sql, name in zip((start, end), names, strict=True)
        )
        return first, last

    def too_many_groups(self, what: str, count: int) -> DataError:
        """Return the error for too many groups."""
        most = self.spec.max_groups_per_window
        return DataError(
            f"{what}, and max_groups_per_window is {most:,}",
            hint="raise it, or group by columns with fewer values",
            groups=count,
        )


def micros(milliseconds: int | None) -> int:
    """Return milliseconds of a declaration in microseconds."""
    return (milliseconds or 0) * 1000


def _grouped(frame: DataFrame, by: Sequence[str], steps: Sequence[str]) -> DataFrame:
    from pyspark.sql.functions import expr

    return frame.groupBy(*by).agg(*(expr(step) for step in steps))
