"""merge: insert new keys, update rows whose compared columns changed, delete or mark keys that are missing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ematix_flow.contract.shape import DELETED_AT
from ematix_flow.contract.write import Counts
from ematix_flow.declare.strategy import Deletes, Merge
from ematix_flow.families.lake.change import (
    DELETE,
    WRITE,
    Change,
    Draft,
    StageFolder,
    Tally,
    action,
    image,
    new_row,
    row_of,
)
from ematix_flow.families.lake.checks import check_keys
from ematix_flow.families.lake.columns import Words, instant
from ematix_flow.families.lake.session import quote
from ematix_flow.families.sql.checks import check_deletes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_THERE = "__flow_there"


def merge(
    stage: DataFrame, target: DataFrame, words: Words, strategy: Merge, folder: StageFolder, *, staged: int,
    is_empty: bool,
) -> Change:  # fmt: skip
    """Return the actions for the rows that change, and for no others."""
    check_keys(stage, words.job, strategy.keys)
    if is_empty:
        rows = stage.alias("s").selectExpr(*image(words, new_row(words)))
        return Change("append", rows, Counts(read=staged, inserted=staged))
    return draft_merge(stage, target, words, strategy, staged=staged).worked_out(target, folder)


def draft_merge(stage: DataFrame, target: DataFrame, words: Words, strategy: Merge, *, staged: int) -> Draft:
    """Return the actions as a query; the caller must reject two staged rows with the same key."""
    actions = _written(stage, target, words, strategy)
    if strategy.deletes is not None:
        actions = actions.unionByName(_retired(stage, target, words, strategy))

    def counts(tally: Tally, existing: Callable[[], int]) -> Counts:
        if strategy.deletes is not None:
            check_deletes(words.job, staged=staged, existing=existing() if tally.missing else 0, missing=tally.missing)
        unchanged = staged - tally.inserted - tally.updated
        return Counts(staged, tally.inserted, tally.updated, unchanged, deleted=tally.deleted)

    return Draft(actions, words.table, strategy.keys, _alive(strategy), counts)


def _written(stage: DataFrame, target: DataFrame, words: Words, strategy: Merge) -> DataFrame:
    from pyspark.sql.functions import expr

    t = target.selectExpr("*", f"true AS {_THERE}").alias("t")
    joined = stage.alias("s").join(t, expr(words.equal(strategy.keys)), "left")
    absent = f"t.{_THERE} IS NULL"
    changed = words.differ(strategy.compare)
    if strategy.deletes is Deletes.SOFT:
        changed = f"({changed} OR t.{quote(DELETED_AT)} IS NOT NULL)"
    inserted = new_row(words)
    updated = row_of("t", words) | {name: f"s.{quote(name)}" for name in strategy.update} | words.metadata()
    updated.pop(DELETED_AT, None)
    values = {
        name: f"CASE WHEN {absent} THEN {inserted.get(name, 'NULL')} ELSE {updated.get(name, 'NULL')} END"
        for name in words.table
    }
    flags = {"inserted": absent, "updated": f"t.{_THERE} IS NOT NULL"}
    return joined.where(f"{absent} OR {changed}").selectExpr(*image(words, values), *action(WRITE, flags))


def _retired(stage: DataFrame, target: DataFrame, words: Words, strategy: Merge) -> DataFrame:
    from pyspark.sql.functions import expr

    keys = stage.selectExpr(*(quote(key) for key in strategy.keys)).alias("s")
    gone = target.where(_alive(strategy)).alias("t").join(keys, expr(words.equal(strategy.keys)), "left_anti")
    flags = {"deleted": "true", "missing": "true"}
    if strategy.deletes is Deletes.HARD:
        return gone.alias("t").selectExpr(*image(words, row_of("t", words)), *action(DELETE, flags))
    values = row_of("t", words) | {DELETED_AT: instant(words.job.started_at)} | words.metadata()
    return gone.alias("t").selectExpr(*image(words, values), *action(WRITE, flags))


def _alive(strategy: Merge) -> str:
    return f"{quote(DELETED_AT)} IS NULL" if strategy.deletes is Deletes.SOFT else "true"
