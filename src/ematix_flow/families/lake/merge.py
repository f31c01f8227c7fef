"""merge: insert new keys, update rows whose compared columns changed, delete or mark keys that are missing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ematix_flow.contract.shape import DELETED_AT
from ematix_flow.contract.write import Counts
from ematix_flow.declare.strategy import Deletes, Merge
from ematix_flow.families.lake.columns import LakeJobSql, instant
from ematix_flow.families.lake.integrity import check_keys
from ematix_flow.families.lake.table_change import (
    DELETE,
    WRITE,
    ActionCounts,
    ChangeDraft,
    StageFolder,
    TableChange,
    action,
    new_row,
    row_expressions,
    row_values,
)
from ematix_flow.families.violations import check_deletes
from ematix_flow.foundation.lazy_imports import f
from ematix_flow.sql.spark_text import quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_THERE = "__flow_there"


def merge(
    stage: DataFrame, target: DataFrame, job_sql: LakeJobSql, strategy: Merge, folder: StageFolder, *, staged: int,
    is_empty: bool,
) -> TableChange:  # fmt: skip
    """Return the actions for the rows that change, and for no others."""
    check_keys(stage, job_sql.job, strategy.keys)
    if is_empty:
        rows = stage.alias("s").selectExpr(*row_expressions(job_sql, new_row(job_sql)))
        return TableChange("append", rows, Counts(read=staged, inserted=staged))
    return draft_merge(stage, target, job_sql, strategy, staged=staged).to_change(target, folder)


def draft_merge(
    stage: DataFrame, target: DataFrame, job_sql: LakeJobSql, strategy: Merge, *, staged: int
) -> ChangeDraft:
    """Return the actions as a query; the caller must reject two staged rows with the same key."""
    actions = _merge_actions(stage, target, job_sql, strategy)
    if strategy.deletes is not None:
        actions = actions.unionByName(_delete_actions(stage, target, job_sql, strategy))

    def counts(tally: ActionCounts, existing: Callable[[], int]) -> Counts:
        if strategy.deletes is not None:
            check_deletes(
                job_sql.job, staged=staged, existing=existing() if tally.missing else 0, missing=tally.missing
            )
        unchanged = staged - tally.inserted - tally.updated
        return Counts(staged, tally.inserted, tally.updated, unchanged, deleted=tally.deleted)

    return ChangeDraft(actions, job_sql.table, strategy.keys, _target_condition(strategy), counts)


def _merge_actions(stage: DataFrame, target: DataFrame, job_sql: LakeJobSql, strategy: Merge) -> DataFrame:
    t = target.selectExpr("*", f"true AS {_THERE}").alias("t")
    joined = stage.alias("s").join(t, f.expr(job_sql.equal(strategy.keys)), "left")
    absent = f"t.{_THERE} IS NULL"
    changed = job_sql.differ(strategy.compare)
    if strategy.deletes is Deletes.SOFT:
        changed = f"({changed} OR t.{quote(DELETED_AT)} IS NOT NULL)"
    inserted = new_row(job_sql)
    updated = row_values("t", job_sql) | {name: f"s.{quote(name)}" for name in strategy.update} | job_sql.metadata()
    updated.pop(DELETED_AT, None)
    values = {
        name: f"CASE WHEN {absent} THEN {inserted.get(name, 'NULL')} ELSE {updated.get(name, 'NULL')} END"
        for name in job_sql.table
    }
    flags = {"inserted": absent, "updated": f"t.{_THERE} IS NOT NULL"}
    return joined.where(f"{absent} OR {changed}").selectExpr(*row_expressions(job_sql, values), *action(WRITE, flags))


def _delete_actions(stage: DataFrame, target: DataFrame, job_sql: LakeJobSql, strategy: Merge) -> DataFrame:
    keys = stage.selectExpr(*(quote(key) for key in strategy.keys)).alias("s")
    gone = (
        target.where(_target_condition(strategy))
        .alias("t")
        .join(keys, f.expr(job_sql.equal(strategy.keys)), "left_anti")
    )
    flags = {"deleted": "true", "missing": "true"}
    if strategy.deletes is Deletes.HARD:
        return gone.alias("t").selectExpr(*row_expressions(job_sql, row_values("t", job_sql)), *action(DELETE, flags))
    values = row_values("t", job_sql) | {DELETED_AT: instant(job_sql.job.started_at)} | job_sql.metadata()
    return gone.alias("t").selectExpr(*row_expressions(job_sql, values), *action(WRITE, flags))


def _target_condition(strategy: Merge) -> str:
    return f"{quote(DELETED_AT)} IS NULL" if strategy.deletes is Deletes.SOFT else "true"
