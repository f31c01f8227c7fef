"""4,000 orders of a small shop, CSV → DuckDB, append."""

from __future__ import annotations

from bench.contestants import cold_and_warm, stock
from bench.ends import CsvSource, DuckdbTarget
from bench.model import WARM, Case, Goal
from bench.tables import SHOP_ORDERS

CASE = Case(
    name="csv_to_duckdb",
    title="CSV → DuckDB, append, 4,000 rows",
    table=SHOP_ORDERS,
    source=CsvSource(),
    target=DuckdbTarget(),
    contestants=(*cold_and_warm("csv_to_duckdb", warmups=5), stock("csv_to_duckdb")),
    goals=(Goal(at_least=2), Goal(at_most_seconds=1.5, who=WARM)),
    note="Stock PySpark declares the columns of the file, as our table does, and finds an empty table in the database.",
)
