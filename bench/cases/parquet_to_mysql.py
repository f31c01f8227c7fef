"""Parquet → MySQL, append."""

from __future__ import annotations

from bench.contestants import cold_and_warm, stock
from bench.ends import MysqlTarget, ParquetSource
from bench.model import WARM, Case, Goal
from bench.tables import ORDERS

CASE = Case(
    name="parquet_to_mysql",
    title="Parquet → MySQL, append",
    table=ORDERS,
    source=ParquetSource(),
    target=MysqlTarget(),
    contestants=(
        *cold_and_warm("parquet_to_mysql"),
        stock("parquet_to_mysql", "mysql"),
    ),
    goals=(Goal(at_least=3), Goal(at_least=4, who=WARM)),
)
