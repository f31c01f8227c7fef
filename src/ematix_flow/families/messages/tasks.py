"""Functions of whole Arrow columns, run inside Spark's tasks, where Spark has no function of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column


def on_arrow(function: Callable[[pa.Array], pa.Array], returns: Any) -> Callable[[Column], Column]:
    """Return a function of one Arrow column as a function of Spark columns."""
    import pyarrow as pa
    from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined]  # missing from its stubs

    def applied(column: pa.Array) -> pa.Array:
        return function(column)

    # Spark derives the kind of the function from annotations that are types; in this module they are only text.
    applied.__annotations__ = {"column": pa.Array, "return": pa.Array}
    made: Callable[[Column], Column] = arrow_udf(applied, returns)
    return made
