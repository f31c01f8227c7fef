"""append and truncate; an incremental append loads a row at or before the watermark only if it is not there yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ematix_flow.contract.write import Counts
from ematix_flow.families.lake.change import Change, StageFolder, image, new_row
from ematix_flow.families.lake.columns import ROWS_SO_FAR, Words, watermark_literal
from ematix_flow.families.lake.session import quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def append(stage: DataFrame, target: DataFrame | None, words: Words, folder: StageFolder, *, staged: int,
           watermark: str | None) -> Change:  # fmt: skip
    """The stage, or what of it is new."""
    incremental = words.job.incremental
    if incremental is None or watermark is None or target is None:
        return Change("append", whole_rows(stage, words), Counts(read=staged, inserted=staged))
    mark = watermark_literal(watermark, words.column(incremental.column).type)
    column = quote(incremental.column)
    seen = f"({column} IS NULL OR {column} <= {mark})"
    later = stage.where(f"NOT {seen}")
    find = _new_by_key if words.job.shape.declared.primary_key else _new_copies
    # The boundary is small; what follows it goes straight from the stage into the table.
    boundary = folder.keep("boundary", find(stage.where(seen), target.where(seen), words))
    inserted = later.count() + boundary.count()
    rows = whole_rows(later.unionByName(boundary), words)
    return Change("append", rows, Counts(read=staged, inserted=inserted, unchanged=staged - inserted))


def truncate(
    stage: DataFrame, target: DataFrame | None, words: Words, *, staged: int, there: int | None = None
) -> Change:
    """Replace every row; `there` says how many there are, where that is known without reading them."""
    deleted = there if there is not None else target.count() if target is not None else 0
    return Change("overwrite", whole_rows(stage, words), Counts(read=staged, inserted=staged, deleted=deleted))


def whole_rows(stage: DataFrame, words: Words) -> DataFrame:
    """Rows as the table has them, with the load's own columns."""
    return stage.alias("s").selectExpr(*image(words, new_row(words)))


def _new_by_key(boundary: DataFrame, present: DataFrame, words: Words) -> DataFrame:
    from pyspark.sql.functions import expr

    keys = words.job.shape.declared.primary_key
    known = present.selectExpr(*(quote(key) for key in keys)).alias("t")
    return boundary.alias("s").join(known, expr(words.equal(keys)), "left_anti")


def _new_copies(boundary: DataFrame, present: DataFrame, words: Words) -> DataFrame:
    """Without a key, equal rows are counted: as many copies are new as the target lacks."""
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
