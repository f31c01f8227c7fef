"""Quality checks of a lake's stage: by DuckDB in this process, or in the Spark session that filled it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ematix_flow.contract.checks import Finding
from ematix_flow.contract.write import WriteJob
from ematix_flow.declare.checks import Check
from ematix_flow.expressions import literal
from ematix_flow.expressions.checking import newest
from ematix_flow.families.checking import StagedRows, examine
from ematix_flow.families.lake.session import quote
from ematix_flow.families.parquet_stage import scratch_dir
from ematix_flow.foundation.errors import QualityDependencyMissing, QualityUnrunnable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MEMORY_LIMIT = "1GB"
_MOST_THREADS = 4

NewestThere = Callable[[str], Any]


def can_check_here() -> bool:
    """Return whether DuckDB, which reads a stage in place, is installed."""
    return find_spec("duckdb") is not None


def in_duckdb(
    job: WriteJob, checks: Sequence[Check], stage: Sequence[Path], newest_there: NewestThere
) -> list[Finding]:
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
                found: list[tuple[Any, ...]] = session.execute(sql).fetchall()
            except duckdb.Error as exc:
                raise QualityUnrunnable(f"DuckDB cannot check the staged rows: {str(exc).splitlines()[0]}") from exc
            return found

        listed = ", ".join(literal(str(file), "duckdb") for file in stage)
        return examine(StagedRows(job, ask, "duckdb", f"read_parquet([{listed}])", newest_there), checks)


def in_spark(job: WriteJob, checks: Sequence[Check], stage: DataFrame, newest_there: NewestThere) -> list[Finding]:
    """Check the rows of a frame through a temporary view."""
    spark, name = stage.sparkSession, f"flow_staged_{job.run_id.replace('-', '')}"
    stage.createOrReplaceTempView(name)
    try:

        def ask(sql: str) -> list[tuple[Any, ...]]:
            return [tuple(row) for row in spark.sql(sql).collect()]

        return examine(StagedRows(job, ask, "spark", name, newest_there), checks)
    finally:
        spark.catalog.dropTempView(name)


def newest_in(table: DataFrame | None, column: str) -> Any:
    """Return the newest value of a frame's column, as text; None when the column does not exist."""
    if table is None or column not in table.columns:
        return None
    return table.selectExpr(f"{newest(quote(column), 'spark')} AS newest").collect()[0][0]


def newest_in_files(files: Sequence[Path], column: str) -> Any:
    """Return the newest value of a column in Parquet files; files older than the column lack it."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    found = []
    for file in files:
        opened = pq.ParquetFile(file)
        if column in opened.schema_arrow.names:
            batches = opened.iter_batches(columns=[column])
            found += [value for batch in batches if (value := pc.max(batch.column(0)).as_py()) is not None]
    return max(found, default=None)
