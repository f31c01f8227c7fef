"""The decorator `@udaf`: classes that aggregate PyArrow arrays for SQL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ematix_flow.declare.placed import placed
from ematix_flow.declare.udfs import PythonAggregateUdfHandle, aggregate_udf, type_name, type_names
from ematix_flow.foundation.location import caller

__all__ = ["PythonAggregateUdfHandle", "apply_udaf_to_batch", "udaf"]


@placed
def udaf(
    *, args: Sequence[str], state: Sequence[str], returns: str, name: str | None = None
) -> Callable[[type], PythonAggregateUdfHandle]:
    """Class decorator: let SQL aggregate with the class; accumulators of one group in several partitions are merged."""
    where, taken, kept = caller(), type_names(args, option="args"), type_names(state, option="state")
    given = type_name(returns, option="returns")

    def decorate(cls: type) -> PythonAggregateUdfHandle:
        return aggregate_udf(cls, args=taken, state=kept, returns=given, name=name, where=where)

    return decorate


def apply_udaf_to_batch(
    handle: PythonAggregateUdfHandle, batch: Any, arg_columns: Sequence[str], *, output_column: str = "result"
) -> Any:
    """Return the aggregate over all rows of a record batch or table, as an array of one value; needs no Spark."""
    from ematix_flow.families.arrow_functions import apply_aggregate

    return apply_aggregate(handle, batch, arg_columns, output_column=output_column)
