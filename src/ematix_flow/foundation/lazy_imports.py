"""Spark, Arrow and sqlglot under their usual names, each imported when it is first used.

They take longer to import than most commands take to run, and many commands need none of them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ematix_flow.foundation.drivers import require_driver

__all__ = ["LazyModule", "exp", "f", "pa", "pc", "pq", "sqlglot", "t"]


class LazyModule:
    """A module that is imported when one of its names is first used; it is sent to tasks by its name.

    `needed_by` are the arguments of `require_driver`, for a module of an optional package.
    """

    def __init__(self, module: str, **needed_by: str) -> None:
        self._module, self._needed_by = module, needed_by

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # inspecting or copying the object must not import it
            raise AttributeError(name)
        module = require_driver(self._module, **self._needed_by) if self._needed_by else import_module(self._module)
        value = getattr(module, name)
        setattr(self, name, value)
        return value

    def __reduce__(self) -> tuple[Callable[..., LazyModule], tuple[()]]:
        return partial(LazyModule, self._module, **self._needed_by), ()


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
