"""Registration of user functions in a Spark session, under unique names."""

from __future__ import annotations

import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ematix_flow.dataplane.arrow_udfs import SPARK_TYPES
from ematix_flow.declare.udfs import Functions, Handle, PythonAggregateUdfHandle, PythonScalarUdfHandle
from ematix_flow.engine.sql.functions import tasks
from ematix_flow.engine.sql.functions.partial_aggregation import MERGING, PREFIX
from ematix_flow.foundation.errors import DeclarationError, PlanError
from ematix_flow.foundation.location import is_ours

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BUILT_IN = "org.apache.spark.sql.catalyst.expressions."


class RegisteredFunctions:
    """The functions of one statement; they are registered again in a session that a stream cloned."""

    def __init__(self, functions: Functions) -> None:
        self.functions = functions
        self._token = uuid.uuid4().hex[:12]
        self._seen: SparkSession | None = None

    def name(self, handle: Handle) -> str:
        """Return the name of the function that returns a row's value, or an aggregate's result from a list of rows."""
        return f"{PREFIX}{handle.name.lower()}_{self._token}"

    def trying(self, handle: Handle) -> str:
        """Return the name of the function that returns a row's value or its error, as a struct."""
        return f"{self.name(handle)}_try"

    def merging(self, handle: Handle) -> str:
        """Return the name of the function that returns a result from the list of a group's states."""
        return f"{self.name(handle)}{MERGING}"

    def is_ours(self, column: str) -> bool:
        """Return whether a column is named after a call of one of these functions."""
        return self._token in column

    def ensure(self, spark: SparkSession) -> None:
        """Register the functions in the session unless it already has them."""
        handles, self._seen = self.functions.handles, spark
        if not handles or spark.catalog.functionExists(self.name(handles[-1])):
            return
        for handle in handles:
            _refuse_built_in(spark, handle)
            _by_value(handle)
            try:
                self._register(spark, handle)
            except Exception as exc:
                raise _unsendable(handle, exc) from exc

    def _register(self, spark: SparkSession, handle: Handle) -> None:
        returns = SPARK_TYPES[handle.returns]
        if isinstance(handle, PythonAggregateUdfHandle):
            _add(spark, self.merging(handle), tasks.aggregate_task(handle, merges=True), returns)
            _add(spark, self.name(handle), tasks.aggregate_task(handle, merges=False), returns)
            return
        if isinstance(handle, PythonScalarUdfHandle):
            _add(
                spark,
                self.trying(handle),
                tasks.checked_scalar_task(handle),
                f"STRUCT<value: {returns}, wrong: STRING>",
            )
            _add(spark, self.name(handle), tasks.scalar_task(handle), returns)

    def unregister(self) -> None:
        """Drop the functions from the session in which they were registered last."""
        if self._seen is None:
            return
        for handle in self.functions.handles:
            for name in (self.name(handle), self.merging(handle), self.trying(handle)):
                self._seen.sql(f"DROP TEMPORARY FUNCTION IF EXISTS {name}")


def _add(spark: SparkSession, name: str, function: Any, returns: str) -> None:
    from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined]  # missing in pyspark's type hints

    spark.udf.register(name, arrow_udf(function, returns))


def _refuse_built_in(spark: SparkSession, handle: Handle) -> None:
    """Raise PlanError for the name of a Spark function: the statement would not show which of the two is meant."""
    if not spark.catalog.functionExists(handle.name):
        return
    if spark.catalog.getFunction(handle.name).className.startswith(_BUILT_IN):
        raise PlanError(
            f"{handle.name} is a function of Spark's own", where=handle.where, hint='choose another: name="my_…"'
        )


def _by_value(handle: Handle) -> None:
    """Pickle the user's own module by value, because Spark's tasks may be unable to import it."""
    from pyspark import cloudpickle

    decorated = handle.function if isinstance(handle, PythonScalarUdfHandle) else handle.accumulator
    module = sys.modules.get(str(getattr(decorated, "__module__", "")))
    file = getattr(module, "__file__", None)
    if module is None or not isinstance(file, str) or module.__name__ == "__main__":
        return
    installed = "site-packages" in Path(file).parts or file.startswith(sys.base_prefix) or is_ours(file)
    if not installed:
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]


def _unsendable(handle: Handle, exc: Exception) -> Exception:
    lines = str(exc).strip().splitlines()
    if "pickle" not in f"{type(exc).__name__} {exc}".lower():
        return exc
    return DeclarationError(
        f"{handle.name} cannot be sent to Spark's tasks: {lines[-1] if lines else type(exc).__name__}",
        where=handle.where,
        hint="make inside the function what cannot travel: connections, locks, open files",
    )
