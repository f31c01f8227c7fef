"""Spark, Arrow and sqlglot under their usual names, each imported when it is first used.

They take longer to import than most commands take to run, and many commands need none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ematix_flow.foundation.packages import LazyModule

__all__ = ["exp", "f", "pa", "pc", "pq", "sqlglot", "t"]


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
