"""Spark, Arrow and sqlglot under their usual names, each imported when it is first used.

They take longer to import than most commands take to run, and many commands need none of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = ["exp", "f", "pa", "pc", "pq", "sqlglot", "t"]


class LazyModule:
    """A module that is imported when one of its names is first used; it is sent to tasks by its name."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        value = getattr(import_module(self._module), name)
        setattr(self, name, value)
        return value

    def __reduce__(self) -> tuple[type[LazyModule], tuple[str]]:
        return LazyModule, (self._module,)


if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq
    import sqlglot
    from pyspark.sql import functions as f
    from pyspark.sql import types as t
    from sqlglot import exp
else:
    pa, pc, pq = LazyModule("pyarrow"), LazyModule("pyarrow.compute"), LazyModule("pyarrow.parquet")
    sqlglot, exp = LazyModule("sqlglot"), LazyModule("sqlglot.expressions")
    f, t = LazyModule("pyspark.sql.functions"), LazyModule("pyspark.sql.types")
