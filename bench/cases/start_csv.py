"""The tiny load once more, from a CSV file: no database and no driver on either side."""

from __future__ import annotations

from bench.contestants import cold_and_warm, stock
from bench.ends import CsvSource, ParquetTarget
from bench.model import Case, Goal
from bench.tables import TINY

CASE = Case(
    name="start_csv",
    title="tiny load, CSV → Parquet",
    table=TINY,
    source=CsvSource(),
    target=ParquetTarget(),
    contestants=(*cold_and_warm("start_csv", warmups=5), stock("start_csv")),
    goals=(Goal(at_least=2.5),),
    note="Stock PySpark declares the columns of the file, as our table does.",
)
