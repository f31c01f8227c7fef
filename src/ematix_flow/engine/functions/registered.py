"""The user's functions in a Spark session, under names that nothing else in it has."""

from __future__ import annotations

import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ematix_flow.declare.udfs import Functions, Handle, PythonAggregateUdfHandle, PythonScalarUdfHandle
from ematix_flow.engine.functions import tasks
from ematix_flow.engine.functions.partial import MERGING, PREFIX
from ematix_flow.families.arrow_functions import SPARK_TYPES
from ematix_flow.foundation.errors import DeclarationError, PlanError
from ematix_flow.foundation.location import is_ours

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BUILT_IN = "org.apache.spark.sql.catalyst.expressions."


class Registered:
    """The functions of one statement; a session that a stream cloned is told of them when it is seen."""

    def __init__(self, functions: Functions) -> None:
        self.functions = functions
        self._token = uuid.uuid4().hex[:12]
        self._seen: SparkSession | None = None

    def name(self, handle: Handle) -> str:
        """A row's value; for an aggregate, the result from the list of a group's rows."""
        return f"{PREFIX}{handle.name.lower()}_{self._token}"

    def trying(self, handle: Handle) -> str:
        """A row's value or what is wrong, as a structure."""
        return f"{self.name(handle)}_try"

    def merging(self, handle: Handle) -> str:
        """The result from the list of a group's states."""
        return f"{self.name(handle)}{MERGING}"

    def is_ours(self, column: str) -> bool:
        """Whether a column is named after a call of one of these."""
        return self._token in column

    def ensure(self, spark: SparkSession) -> None:
        """Make the session know them."""
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
            _add(spark, self.merging(handle), tasks.finishing_task(handle, merges=True), returns)
            _add(spark, self.name(handle), tasks.finishing_task(handle, merges=False), returns)
            return
        if isinstance(handle, PythonScalarUdfHandle):
            _add(spark, self.trying(handle), tasks.trying_task(handle), f"STRUCT<value: {returns}, wrong: STRING>")
            _add(spark, self.name(handle), tasks.scalar_task(handle), returns)

    def forget(self) -> None:
        """Take them out of the session again that was last told of them."""
        if self._seen is None:
            return
        for handle in self.functions.handles:
            for name in (self.name(handle), self.merging(handle), self.trying(handle)):
                self._seen.sql(f"DROP TEMPORARY FUNCTION IF EXISTS {name}")


def _add(spark: SparkSession, name: str, function: Any, returns: str) -> None:
    from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined]  # its hints do not know it

    spark.udf.register(name, arrow_udf(function, returns))


def _refuse_built_in(spark: SparkSession, handle: Handle) -> None:
    """A function of that name would be hidden, and nobody could tell from the statement which one is meant."""
    if not spark.catalog.functionExists(handle.name):
        return
    if spark.catalog.getFunction(handle.name).className.startswith(_BUILT_IN):
        raise PlanError(
            f"{handle.name} is a function of Spark's own", where=handle.where, hint='choose another: name="my_…"'
        )


def _by_value(handle: Handle) -> None:
    """Tasks need not be able to import the user's module: what the function uses of it travels along."""
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
