"""The decorator `@udf`: functions over PyArrow arrays that SQL can call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ematix_flow.declare.placed import placed
from ematix_flow.declare.udfs import PythonScalarUdfHandle, scalar_udf, type_name, type_names
from ematix_flow.foundation.location import caller

__all__ = ["PythonScalarUdfHandle", "apply_udf_to_batch", "udf"]


@placed
def udf(
    *, args: Sequence[str], returns: str, name: str | None = None
) -> Callable[[Callable[..., Any]], PythonScalarUdfHandle]:
    """Function decorator: let SQL call the function, which takes arrays of `args` and returns one of equal length."""
    where, taken, given = caller(), type_names(args, option="args"), type_name(returns, option="returns")

    def decorate(function: Callable[..., Any]) -> PythonScalarUdfHandle:
        return scalar_udf(function, args=taken, returns=given, name=name, where=where)

    return decorate


def apply_udf_to_batch(
    handle: PythonScalarUdfHandle, batch: Any, arg_columns: Sequence[str], *, output_column: str = "result"
) -> Any:
    """Return the function's array for the named columns of a record batch or table; needs no Spark."""
    from ematix_flow.families.arrow_functions import apply_scalar

    return apply_scalar(handle, batch, arg_columns, output_column=output_column)
