"""append and truncate; an incremental append loads a row at or before the watermark only if it is not there yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ematix_flow.contract.write import Counts
from ematix_flow.declare.types import Column
from ematix_flow.families.lake.columns import ROWS_SO_FAR, LakeJobSql, watermark_literal
from ematix_flow.families.lake.integrity import StageFacts
from ematix_flow.families.lake.table_change import StageFolder, TableChange, new_row, row_expressions
from ematix_flow.foundation.lazy_imports import f
from ematix_flow.sql.spark_text import quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


_FLOATING = ("float", "double")  # engines sort NaN differently


def append(stage: DataFrame, target: DataFrame | None, job_sql: LakeJobSql, folder: StageFolder, *, facts: StageFacts,
           watermark: str | None) -> TableChange:  # fmt: skip
    """Return the change that appends the stage; with a watermark, only its new rows."""
    if target is None or not _is_compared(job_sql, watermark):
        return TableChange("append", complete_rows(stage, job_sql), Counts(read=facts.rows, inserted=facts.rows))
    later, boundary = _parts(stage, target, job_sql, facts, watermark or "")
    # The boundary is small; later rows are written from the stage directly into the table.
    boundary = folder.write("boundary", boundary)
    inserted = later.count() + boundary.count()
    rows = complete_rows(later.unionByName(boundary), job_sql)
    return TableChange("append", rows, Counts(read=facts.rows, inserted=inserted, unchanged=facts.rows - inserted))


def new_rows(
    stage: DataFrame, target: DataFrame, job_sql: LakeJobSql, *, facts: StageFacts, watermark: str
) -> DataFrame:
    """Return complete rows of the stage that are after the watermark or not in the target yet."""
    later, boundary = _parts(stage, target, job_sql, facts, watermark)
    return complete_rows(later.unionByName(boundary), job_sql)


def _is_compared(job_sql: LakeJobSql, watermark: str | None) -> bool:
    return job_sql.job.incremental is not None and watermark is not None


def _parts(
    stage: DataFrame, target: DataFrame, job_sql: LakeJobSql, facts: StageFacts, watermark: str
) -> tuple[DataFrame, DataFrame]:
    """Return the rows after the watermark, and those up to it that the target lacks."""
    incremental = job_sql.job.incremental
    assert incremental is not None  # noqa: S101  only loads with a watermark are compared
    column = job_sql.column(incremental.column)
    name, mark = quote(column.name), watermark_literal(watermark, column.type)
    seen = f"({name} IS NULL OR {name} <= {mark})"
    find = _new_by_key if job_sql.job.shape.declared.primary_key else _new_copies
    boundary = find(stage.where(seen), target.where(_possibly_equal_rows(facts, name, mark, column)), job_sql)
    return stage.where(f"NOT {seen}"), boundary


def _possibly_equal_rows(facts: StageFacts, name: str, mark: str, column: Column) -> str:
    """Return a condition for target rows that may equal a staged row up to the watermark; it limits the rows read."""
    met = f"{name} <= {mark}"
    if facts.earliest is not None and column.type.kind not in _FLOATING:
        met += f" AND {name} >= {watermark_literal(facts.earliest, column.type)}"
    return f"(({met}) OR {name} IS NULL)" if facts.null_watermarks else f"({met})"


def truncate(
    stage: DataFrame, target: DataFrame | None, job_sql: LakeJobSql, *, staged: int, existing_rows: int | None = None
) -> TableChange:
    """Return the change that replaces every row; `there` is the number of existing rows if known without reading."""
    deleted = existing_rows if existing_rows is not None else target.count() if target is not None else 0
    return TableChange(
        "overwrite", complete_rows(stage, job_sql), Counts(read=staged, inserted=staged, deleted=deleted)
    )


def complete_rows(stage: DataFrame, job_sql: LakeJobSql) -> DataFrame:
    """Return rows with all columns of the table, including its metadata columns."""
    return stage.alias("s").selectExpr(*row_expressions(job_sql, new_row(job_sql)))


def _new_by_key(boundary: DataFrame, present: DataFrame, job_sql: LakeJobSql) -> DataFrame:
    keys = job_sql.job.shape.declared.primary_key
    known = present.selectExpr(*(quote(key) for key in keys)).alias("t")
    return boundary.alias("s").join(known, f.expr(job_sql.equal(keys)), "left_anti")


def _new_copies(boundary: DataFrame, present: DataFrame, job_sql: LakeJobSql) -> DataFrame:
    """Return as many copies of each row as the target lacks: without a key, equal rows are counted."""
    hashed = job_sql.row_hash(job_sql.declared)
    numbered = boundary.alias("s").selectExpr(
        "s.*",
        f"{hashed} AS __flow_hash",
        f"row_number() OVER (PARTITION BY {hashed} ORDER BY {hashed} {ROWS_SO_FAR}) AS __flow_copy",
    )
    copies = (
        present.alias("s")
        .selectExpr(f"{hashed} AS __flow_present")
        .groupBy("__flow_present")
        .agg(f.expr("count(*) AS __flow_copies"))
    )
    joined = numbered.join(copies, numbered["__flow_hash"] == copies["__flow_present"], "left")
    return joined.where("__flow_copies IS NULL OR __flow_copy > __flow_copies").selectExpr(
        *(quote(name) for name in job_sql.declared)
    )
