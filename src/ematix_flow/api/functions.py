"""The decorators `@udf` and `@udaf`, and both kinds of functions applied to a batch without Spark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ematix_flow.declare.udfs import (
    PythonAggregateUdfHandle,
    PythonScalarUdfHandle,
    aggregate_udf,
    scalar_udf,
    type_name,
    type_names,
)
from ematix_flow.foundation.location import caller
from ematix_flow.foundation.signatures import at_callers_line


@at_callers_line
def udf(
    *, args: Sequence[str], returns: str, name: str | None = None
) -> Callable[[Callable[..., Any]], PythonScalarUdfHandle]:
    """Function decorator: let SQL call the function, which takes arrays of `args` and returns one of equal length."""
    where, taken, return_type = caller(), type_names(args, option="args"), type_name(returns, option="returns")

    def decorate(function: Callable[..., Any]) -> PythonScalarUdfHandle:
        return scalar_udf(function, args=taken, returns=return_type, name=name, where=where)

    return decorate


def apply_udf_to_batch(
    handle: PythonScalarUdfHandle, batch: Any, arg_columns: Sequence[str], *, output_column: str = "result"
) -> Any:
    """Return the function's array for the named columns of a record batch or table; needs no Spark."""
    from ematix_flow.dataplane.arrow_udfs import apply_scalar

    return apply_scalar(handle, batch, arg_columns, output_column=output_column)


@at_callers_line
def udaf(
    *, args: Sequence[str], state: Sequence[str], returns: str, name: str | None = None
) -> Callable[[type], PythonAggregateUdfHandle]:
    """Class decorator: let SQL aggregate with the class; accumulators of one group in several partitions are merged."""
    where, taken, kept = caller(), type_names(args, option="args"), type_names(state, option="state")
    return_type = type_name(returns, option="returns")

    def decorate(cls: type) -> PythonAggregateUdfHandle:
        return aggregate_udf(cls, args=taken, state=kept, returns=return_type, name=name, where=where)

    return decorate


def apply_udaf_to_batch(
    handle: PythonAggregateUdfHandle, batch: Any, arg_columns: Sequence[str], *, output_column: str = "result"
) -> Any:
    """Return the aggregate over all rows of a record batch or table, as an array of one value; needs no Spark."""
    from ematix_flow.dataplane.arrow_udfs import apply_aggregate

    return apply_aggregate(handle, batch, arg_columns, output_column=output_column)
