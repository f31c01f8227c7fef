"""The tiny load once more, from a CSV file: no database and no driver on either side."""

from __future__ import annotations

from bench.contestants import product, stock
from bench.ends import CsvSource, ParquetTarget
from bench.model import Case, Goal
from bench.tables import TINY

CASE = Case(
    name="start_csv",
    title="tiny run, CSV → Parquet",
    table=TINY,
    source=CsvSource(),
    target=ParquetTarget(),
    contestants=(product("start_csv"), stock("start_csv")),
    goals=(Goal(at_least=2.5),),
)
