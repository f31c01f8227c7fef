"""Quality checks of a lake's stage: by DuckDB in this process, or in the Spark session that filled it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ematix_flow.contract.checks import CheckResult
from ematix_flow.contract.write import WriteJob
from ematix_flow.dataplane.parquet_stage import scratch_dir
from ematix_flow.declare.quality.checks import Check
from ematix_flow.families.expectations import StagedRows, run_checks
from ematix_flow.foundation.errors import QualityDependencyMissing, QualityUnrunnable
from ematix_flow.foundation.lazy_imports import pc, pq
from ematix_flow.sql.expressions import literal
from ematix_flow.sql.expressions.check_conditions import newest_value
from ematix_flow.sql.spark_text import quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MEMORY_LIMIT = "1GB"
_MOST_THREADS = 4

NewestThere = Callable[[str], Any]


def can_check_in_duckdb() -> bool:
    """Return whether DuckDB, which reads a stage in place, is installed."""
    return find_spec("duckdb") is not None


def staged_rows_in_duckdb(
    job: WriteJob, checks: Sequence[Check], stage: Sequence[Path], newest_there: NewestThere
) -> list[CheckResult]:
    """Check the rows of Parquet files in place: takes a small part of the time Spark needs for one aggregate."""
    try:
        import duckdb
    except ImportError as exc:
        raise QualityDependencyMissing(
            "checks of files need duckdb where no Spark runs, and it is not installed",
            hint='pip install "ematix-flow-spark[duckdb]"',
        ) from exc
    with ExitStack() as open_until:
        session = open_until.enter_context(closing(duckdb.connect()))
        folder = scratch_dir(open_until)
        for name, value in (
            ("TimeZone", "UTC"),
            ("memory_limit", _MEMORY_LIMIT),
            ("temp_directory", str(folder)),
            ("threads", min(_MOST_THREADS, os.cpu_count() or 1)),
        ):
            session.execute(f"SET {name} = {literal(value, 'duckdb')}")

        def ask(sql: str) -> list[tuple[Any, ...]]:
            try:
                rows: list[tuple[Any, ...]] = session.execute(sql).fetchall()
            except duckdb.Error as exc:
                raise QualityUnrunnable(f"DuckDB cannot check the staged rows: {str(exc).splitlines()[0]}") from exc
            return rows

        listed = ", ".join(literal(str(file), "duckdb") for file in stage)
        return run_checks(StagedRows(job, ask, "duckdb", f"read_parquet([{listed}])", newest_there), checks)


def staged_rows_in_spark(
    job: WriteJob, checks: Sequence[Check], stage: DataFrame, newest_there: NewestThere
) -> list[CheckResult]:
    """Check the rows of a frame through a temporary view."""
    spark, name = stage.sparkSession, f"flow_staged_{job.run_id.replace('-', '')}"
    stage.createOrReplaceTempView(name)
    try:

        def ask(sql: str) -> list[tuple[Any, ...]]:
            return [tuple(row) for row in spark.sql(sql).collect()]

        return run_checks(StagedRows(job, ask, "spark", name, newest_there), checks)
    finally:
        spark.catalog.dropTempView(name)


def newest_in(table: DataFrame | None, column: str) -> Any:
    """Return the newest value of a frame's column, as text; None when the column does not exist."""
    if table is None or column not in table.columns:
        return None
    return table.selectExpr(f"{newest_value(quote(column), 'spark')} AS newest").collect()[0][0]


def newest_in_files(files: Sequence[Path], column: str) -> Any:
    """Return the newest value of a column in Parquet files; files older than the column lack it."""
    values = []
    for file in files:
        opened = pq.ParquetFile(file)
        if column in opened.schema_arrow.names:
            batches = opened.iter_batches(columns=[column])
            values += [value for batch in batches if (value := pc.max(batch.column(0)).as_py()) is not None]
    return max(values, default=None)
