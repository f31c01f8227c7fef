"""MySQL → Parquet."""

from __future__ import annotations

from bench.contestants import cold_and_warm, connectorx, polars, stock
from bench.ends import MysqlSource, ParquetTarget
from bench.model import WARM, Case, Goal
from bench.tables import LINEITEM

CASE = Case(
    name="mysql_to_parquet",
    title="MySQL → Parquet",
    table=LINEITEM,
    source=MysqlSource(),
    target=ParquetTarget(),
    contestants=(
        *cold_and_warm("mysql_to_parquet"),
        stock("mysql_to_parquet", "mysql"),
        connectorx("mysql_to_parquet"),
        polars("mysql_to_parquet"),
    ),
    goals=(Goal(at_least=3), Goal(at_least=4, who=WARM)),
)
