"""Checks of a lake's stage: in the Spark session that filled it, or by DuckDB where no Spark runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ematix_flow.contract.checks import Finding
from ematix_flow.contract.write import WriteJob
from ematix_flow.declare.checks import Check
from ematix_flow.expressions import literal
from ematix_flow.families.checking import StagedRows, examine
from ematix_flow.families.parquet_stage import scratch_dir
from ematix_flow.foundation.errors import QualityDependencyMissing, QualityUnrunnable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MEMORY_LIMIT = "1GB"
_MOST_THREADS = 4


def in_spark(
    job: WriteJob, checks: Sequence[Check], *, stage: DataFrame, table: Callable[[], DataFrame | None]
) -> list[Finding]:
    """The rows of a frame, and those of the table where somebody asks for them."""
    spark = stage.sparkSession
    with ExitStack() as open_until:

        def view(frame: DataFrame, what: str) -> str:
            name = f"flow_{what}_{job.run_id.replace('-', '')}"
            frame.createOrReplaceTempView(name)
            open_until.callback(spark.catalog.dropTempView, name)
            return name

        def there(column: str) -> str | None:
            frame = table()
            return view(frame, "there") if frame is not None and column in frame.columns else None

        def ask(sql: str) -> list[tuple[Any, ...]]:
            return [tuple(row) for row in spark.sql(sql).collect()]

        return examine(StagedRows(job, ask, "spark", view(stage, "staged"), there), checks)


def in_duckdb(job: WriteJob, checks: Sequence[Check], *, stage: Sequence[Path], table: Sequence[Path]) -> list[Finding]:
    """The rows of Parquet files, read in place."""
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

        def there(column: str) -> str | None:
            files = [file for file in table if _has(file, column)]
            return _read(files) if files else None

        return examine(StagedRows(job, ask, "duckdb", _read(stage), there), checks)


def can_check_without_spark() -> bool:
    """Whether the package that does it is there."""
    from importlib.util import find_spec

    return find_spec("duckdb") is not None


def _has(file: Path, column: str) -> bool:
    import pyarrow.parquet as pq

    return column in pq.read_schema(file).names


def _read(files: Sequence[Path]) -> str:
    listed = ", ".join(literal(str(file), "duckdb") for file in files)
    return f"read_parquet([{listed}], union_by_name = true)"
