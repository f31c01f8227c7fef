"""MySQL → Parquet."""

from __future__ import annotations

from bench.contestants import connectorx, polars, product, stock
from bench.ends import MysqlSource, ParquetTarget
from bench.model import Case, Goal
from bench.tables import LINEITEM

CASE = Case(
    name="mysql_to_parquet",
    title="MySQL → Parquet",
    table=LINEITEM,
    source=MysqlSource(),
    target=ParquetTarget(),
    contestants=(
        product("mysql_to_parquet"),
        stock("mysql_to_parquet", "mysql"),
        connectorx("mysql_to_parquet"),
        polars("mysql_to_parquet"),
    ),
    goals=(Goal(at_least=3),),
)
