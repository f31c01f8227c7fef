"""append and truncate; an incremental append loads a row at or before the watermark only if it is not there yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ematix_flow.contract.write import Counts
from ematix_flow.declare.types import Column
from ematix_flow.families.lake.change import Change, StageFolder, image, new_row
from ematix_flow.families.lake.checks import Facts
from ematix_flow.families.lake.columns import ROWS_SO_FAR, Words, watermark_literal
from ematix_flow.families.lake.session import quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


_FLOATING = ("float", "double")  # engines sort NaN differently


def append(stage: DataFrame, target: DataFrame | None, words: Words, folder: StageFolder, *, facts: Facts,
           watermark: str | None) -> Change:  # fmt: skip
    """Return the change that appends the stage; with a watermark, only its new rows."""
    if target is None or not _is_compared(words, watermark):
        return Change("append", whole_rows(stage, words), Counts(read=facts.rows, inserted=facts.rows))
    later, boundary = _parts(stage, target, words, facts, watermark or "")
    # The boundary is small; later rows are written from the stage directly into the table.
    boundary = folder.keep("boundary", boundary)
    inserted = later.count() + boundary.count()
    rows = whole_rows(later.unionByName(boundary), words)
    return Change("append", rows, Counts(read=facts.rows, inserted=inserted, unchanged=facts.rows - inserted))


def new_rows(stage: DataFrame, target: DataFrame, words: Words, *, facts: Facts, watermark: str) -> DataFrame:
    """Return complete rows of the stage that are after the watermark or not in the target yet."""
    later, boundary = _parts(stage, target, words, facts, watermark)
    return whole_rows(later.unionByName(boundary), words)


def _is_compared(words: Words, watermark: str | None) -> bool:
    return words.job.incremental is not None and watermark is not None


def _parts(
    stage: DataFrame, target: DataFrame, words: Words, facts: Facts, watermark: str
) -> tuple[DataFrame, DataFrame]:
    """Return the rows after the watermark, and those up to it that the target lacks."""
    incremental = words.job.incremental
    assert incremental is not None  # noqa: S101  only loads with a watermark are compared
    column = words.column(incremental.column)
    name, mark = quote(column.name), watermark_literal(watermark, column.type)
    seen = f"({name} IS NULL OR {name} <= {mark})"
    find = _new_by_key if words.job.shape.declared.primary_key else _new_copies
    boundary = find(stage.where(seen), target.where(_met_by(facts, name, mark, column)), words)
    return stage.where(f"NOT {seen}"), boundary


def _met_by(facts: Facts, name: str, mark: str, column: Column) -> str:
    """Return a condition for target rows that may equal a staged row up to the watermark; it limits the rows read."""
    met = f"{name} <= {mark}"
    if facts.earliest is not None and column.type.kind not in _FLOATING:
        met += f" AND {name} >= {watermark_literal(facts.earliest, column.type)}"
    return f"(({met}) OR {name} IS NULL)" if facts.null_watermarks else f"({met})"


def truncate(
    stage: DataFrame, target: DataFrame | None, words: Words, *, staged: int, there: int | None = None
) -> Change:
    """Return the change that replaces every row; `there` is the number of existing rows if known without reading."""
    deleted = there if there is not None else target.count() if target is not None else 0
    return Change("overwrite", whole_rows(stage, words), Counts(read=staged, inserted=staged, deleted=deleted))


def whole_rows(stage: DataFrame, words: Words) -> DataFrame:
    """Return rows with all columns of the table, including its metadata columns."""
    return stage.alias("s").selectExpr(*image(words, new_row(words)))


def _new_by_key(boundary: DataFrame, present: DataFrame, words: Words) -> DataFrame:
    from pyspark.sql.functions import expr

    keys = words.job.shape.declared.primary_key
    known = present.selectExpr(*(quote(key) for key in keys)).alias("t")
    return boundary.alias("s").join(known, expr(words.equal(keys)), "left_anti")


def _new_copies(boundary: DataFrame, present: DataFrame, words: Words) -> DataFrame:
    """Return as many copies of each row as the target lacks: without a key, equal rows are counted."""
    from pyspark.sql.functions import expr

    hashed = words.row_hash(words.declared)
    numbered = boundary.alias("s").selectExpr(
        "s.*",
        f"{hashed} AS __flow_hash",
        f"row_number() OVER (PARTITION BY {hashed} ORDER BY {hashed} {ROWS_SO_FAR}) AS __flow_copy",
    )
    copies = (
        present.alias("s")
        .selectExpr(f"{hashed} AS __flow_present")
        .groupBy("__flow_present")
        .agg(expr("count(*) AS __flow_copies"))
    )
    joined = numbered.join(copies, numbered["__flow_hash"] == copies["__flow_present"], "left")
    return joined.where("__flow_copies IS NULL OR __flow_copy > __flow_copies").selectExpr(
        *(quote(name) for name in words.declared)
    )
