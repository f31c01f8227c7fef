"""Aggregations in three steps, as SQL: partial over rows, merged over partials, final over a merged partial.

Partials of one type merge to that very type, so the state has the same schema after any number of micro-batches. Sums
of whole numbers and decimals are exact and fail the stream where they overflow. `first` and `last` are by event time;
of values at the same moment, `first` takes the smallest and `last` the largest. Distinct values are counted as a
sketch (about 0.8 % off beyond a thousand values; how far depends on how rows fell into micro-batches) or, exactly, as
a set.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ematix_flow.dataplane.task_errors import raise_bad_value_sql
from ematix_flow.declare.streams.parts import Aggregation
from ematix_flow.foundation.errors import PlanError
from ematix_flow.streaming.state.operator import AT

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

_SKETCH = 14  # registers are 2 to the power of this
_WHOLE = ("tinyint", "smallint", "int", "bigint")
_NESTED = ("struct", "array", "map", "variant")
_NUMBERS = (*_WHOLE, "float", "double", "decimal", "interval")


@dataclass(frozen=True)
class WindowAggregate:
    """One aggregation of a window, with its number."""

    spec: Aggregation
    number: int

    @property
    def input_column(self) -> str:
        """Return our name for the column of incoming rows."""
        return f"_flow_given{self.number}"

    @property
    def name(self) -> str:
        """Return the column of the state."""
        return f"_flow_agg{self.number}"

    def partial(self, kind: DataType | None) -> str:
        """Return SQL over rows; `kind` is the type of `given`, None where there is no column."""
        agg, value = self.spec.agg, self.input_column
        if kind is None:
            return "count(*)"
        if agg in ("sum", "avg") and not kind.simpleString().startswith(_NUMBERS):
            raise PlanError(
                f"{self._label} needs numbers, and the column is {kind.simpleString().upper()}",
                hint=f"cast {self.spec.column} in transform_sql",
                column=self.spec.column,
            )
        if agg == "avg":
            return _average_parts(value, kind)
        if agg in ("first", "last"):
            taken = f"named_struct('at', {AT}, 'value', {value})"
            return f"{_first_or_last(agg)}({taken}) FILTER (WHERE {value} IS NOT NULL)"
        if agg == "count_distinct":
            return self._distinct(kind)
        return f"{'count' if agg == 'count_col' else agg}({value})"

    def merged(self, kind: DataType) -> str:
        """Return SQL over partials; `kind` is their type, and that of the result."""
        agg, part = self.spec.agg, self.name
        if agg in ("count", "count_col", "sum"):
            return f"CAST(sum({part}) AS {kind.simpleString()})"
        if agg == "avg":
            total = _field(kind, 0)
            summed = f"CAST(sum({part}.{total[0]}) AS {total[1].simpleString()})"
            return f"named_struct('{total[0]}', {summed}, 'n', sum({part}.n))"
        if agg == "count_distinct":
            return (
                self._limited(f"array_distinct(flatten(collect_list({part})))")
                if self._exact
                else f"hll_union_agg({part})"
            )
        return f"{_first_or_last(agg)}({part})"

    def final(self, kind: DataType) -> str:
        """Return SQL for the value of a merged partial of this type."""
        agg, part = self.spec.agg, self.name
        if agg == "avg":
            return _average(part, kind)
        if agg in ("first", "last"):
            return f"{part}.value"
        if agg == "count_distinct":
            return f"CAST(size({part}) AS BIGINT)" if self._exact else f"hll_sketch_estimate({part})"
        return part

    @property
    def _exact(self) -> bool:
        return self.spec.mode == "exact"

    @property
    def _label(self) -> str:
        return f"Aggregation {self.spec.agg}({self.spec.column}) AS {self.spec.as_}"

    def _distinct(self, kind: DataType) -> str:
        value, is_text = _distinct_key(self.input_column, kind)
        if self._exact:
            return self._limited(f"collect_set({value})")
        # A sketch ignores empty texts.
        return f"hll_sketch_agg({f'''concat('=', {value})''' if is_text else value}, {_SKETCH})"

    def _limited(self, values: str) -> str:
        """Return SQL for a set, which fails where it has more values than allowed."""
        most = self.spec.max_distinct_values_per_group
        if most is None:
            return values
        refused = raise_bad_value_sql(
            f"size({values})",
            before=f"{self._label} found ",
            after=f" distinct values in one group, and max_distinct_values_per_group is {most}",
            hint='raise it, group by more columns, or count with mode="approximate"',
        )
        return f"CASE WHEN size({values}) > {most} THEN {refused} ELSE {values} END"


def _first_or_last(agg: str) -> str:
    return {"first": "min", "last": "max"}.get(agg, agg)


def _average_parts(value: str, kind: DataType) -> str:
    """Return SQL for the sum and count of an average; that of whole numbers is a DOUBLE, as everywhere in Spark."""
    summed = f"CAST({value} AS DOUBLE)" if kind.simpleString() in _WHOLE else value
    return f"named_struct('total', sum({summed}), 'n', count({value}))"


def _average(part: str, kind: DataType) -> str:
    from pyspark.sql.types import DecimalType

    _, summed = _field(kind, 0)
    if not isinstance(summed, DecimalType):
        return f"{part}.total / nullif({part}.n, 0)"
    # The sum of a DECIMAL(p, s) is DECIMAL(p + 10, s), and its average DECIMAL(p + 4, s + 4), as everywhere in Spark.
    precision = summed.precision - 6 if summed.precision < 38 else 38
    result_type = f"DECIMAL({precision}, {min(summed.scale + 4, precision)})"
    return f"CAST({part}.total / CAST(nullif({part}.n, 0) AS DECIMAL(20, 0)) AS {result_type})"


def _field(kind: DataType, number: int) -> tuple[str, DataType]:
    from pyspark.sql.types import StructType

    if not isinstance(kind, StructType):
        raise TypeError(f"a partial average is a struct, not {kind.simpleString()}")
    return kind.fields[number].name, kind.fields[number].dataType


def _distinct_key(value: str, kind: DataType) -> tuple[str, bool]:
    """Return SQL that is equal for equal values, whatever the width of their column, and whether it is text."""
    type_name = kind.simpleString()
    if type_name in _WHOLE:
        return f"CAST({value} AS BIGINT)", False
    if type_name == "timestamp":  # as text, two instants of the night when clocks go back are equal
        return f"unix_micros({value})", False
    if type_name in ("float", "double"):  # adding 0.0 makes 0.0 of -0.0
        return f"CAST(CAST({value} AS DOUBLE) + 0.0D AS STRING)", True
    if type_name == "binary":
        return f"hex({value})", True
    if type_name.startswith(_NESTED):
        return f"to_json({value})", True
    return f"CAST({value} AS STRING)", True
