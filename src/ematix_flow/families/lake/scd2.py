"""scd2 by processing time: a version starts when the load detects the change."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ematix_flow.contract.shape import IS_CURRENT, ROW_HASH, VALID_FROM, VALID_TO
from ematix_flow.contract.write import Counts
from ematix_flow.dataplane.spark_session import is_sail_session
from ematix_flow.declare.strategy import Deletes, Scd2
from ematix_flow.families.lake.columns import LakeJobSql, instant, plus
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
from ematix_flow.families.violations import check_deletes, check_forgotten
from ematix_flow.foundation.lazy_imports import f
from ematix_flow.sql.spark_text import quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_STAGED = "__flow_staged"


def scd2(
    stage: DataFrame, target: DataFrame, job_sql: LakeJobSql, strategy: Scd2, folder: StageFolder, *, staged: int,
    is_empty: bool,
) -> TableChange:  # fmt: skip
    """Close changed versions, insert new ones, update columns that are not compared; one action per touched version."""
    check_keys(stage, job_sql.job, strategy.keys)
    if is_empty:
        rows = stage.alias("s").selectExpr(*row_expressions(job_sql, _opening(job_sql, strategy)))
        return TableChange(
            "append", rows, Counts(read=staged, inserted=staged, closed=staged if _ends_at_once(strategy) else 0)
        )
    return draft_scd2(stage, target, job_sql, strategy, staged=staged).to_change(target, folder)


def draft_scd2(stage: DataFrame, target: DataFrame, job_sql: LakeJobSql, strategy: Scd2, *, staged: int) -> ChangeDraft:
    """Return the actions as a query; the caller must reject two staged rows with the same key."""
    actions = _versions(stage, target, job_sql, strategy)
    if strategy.deletes is Deletes.HARD:
        actions = actions.unionByName(deleted_keys(stage, target, job_sql, strategy))

    def counts(tally: ActionCounts, existing: Callable[[], int]) -> Counts:
        if strategy.deletes is Deletes.HARD:
            check_forgotten(
                job_sql.job, staged=staged, current=existing, missing=tally.missing, versions=target.count,
                deleted=tally.deleted,
            )  # fmt: skip
        elif strategy.deletes is Deletes.SOFT:
            check_deletes(
                job_sql.job, staged=staged, existing=existing() if tally.missing else 0, missing=tally.missing
            )
        unchanged = max(staged - tally.inserted - tally.updated, 0)
        return Counts(staged, tally.inserted, tally.updated, unchanged, tally.closed, tally.deleted)

    return ChangeDraft(actions, job_sql.table, (*strategy.keys, VALID_FROM), quote(IS_CURRENT), counts)


def deleted_keys(stage: DataFrame, target: DataFrame, job_sql: LakeJobSql, strategy: Scd2) -> DataFrame:
    """Return actions that delete every version of the keys that the stage lacks."""
    keys = stage.selectExpr(*(quote(key) for key in strategy.keys)).alias("s")
    gone = target.alias("t").join(keys, f.expr(job_sql.equal(strategy.keys)), "left_anti").alias("t")
    flags = {"deleted": "true", "missing": f"t.{quote(IS_CURRENT)}"}
    return gone.selectExpr(*row_expressions(job_sql, row_values("t", job_sql)), *action(DELETE, flags))


def expired_versions(current: DataFrame, job_sql: LakeJobSql, strategy: Scd2) -> DataFrame:
    """Return actions that close the versions older than their TTL, each at the moment its TTL ended."""
    assert strategy.ttl is not None  # noqa: S101  only called with a ttl
    ends = plus(f"t.{quote(VALID_FROM)}", strategy.ttl)
    over = current.alias("t").where(f"{ends} <= {instant(job_sql.job.started_at)}")
    values = row_values("t", job_sql) | {VALID_TO: ends, IS_CURRENT: "false"}
    return over.alias("t").selectExpr(*row_expressions(job_sql, values), *action(WRITE, {"closed": "true"}))


def _versions(stage: DataFrame, target: DataFrame, job_sql: LakeJobSql, strategy: Scd2) -> DataFrame:
    """Join the stage with the versions of its keys; return an action for the old version, the new one, or both."""
    whole = strategy.ttl is not None or strategy.deletes is Deletes.SOFT
    joined = stage.selectExpr("*", f"true AS {_STAGED}").alias("s").join(
        _matched_versions(target, job_sql, strategy).alias("t"), f.expr(job_sql.equal(strategy.keys)), "full" if whole else "left"
    )  # fmt: skip
    cases = _Cases(job_sql, strategy)
    olds = [*row_expressions(job_sql, cases.old_row()), *action(WRITE, cases.old_flags())]
    news = [*row_expressions(job_sql, _opening(job_sql, strategy)), *action(WRITE, cases.new_flags())]
    if is_sail_session(stage.sparkSession):  # Sail rejects structs in one array whose fields differ in nullability
        return joined.where(cases.touches).selectExpr(*olds).unionByName(joined.where(cases.opens).selectExpr(*news))
    old, new = ", ".join(olds), ", ".join(news)
    return joined.selectExpr(
        f"inline(array_compact(array(IF({cases.touches}, struct({old}), NULL), IF({cases.opens}, struct({new}), NULL))))"
    )


def _matched_versions(target: DataFrame, job_sql: LakeJobSql, strategy: Scd2) -> DataFrame:
    """Return the current versions; with a TTL the latest ones, to detect those that only their TTL closed."""
    if strategy.ttl is None:
        return target.where(quote(IS_CURRENT))
    keys = ", ".join(quote(key) for key in strategy.keys)
    newest = f"row_number() OVER (PARTITION BY {keys} ORDER BY {quote(VALID_FROM)} DESC) AS __flow_newest"
    return target.selectExpr("*", newest).where("__flow_newest = 1").drop("__flow_newest")


class _Cases:
    """Conditions on a joined row: which version changes, and how."""

    def __init__(self, job_sql: LakeJobSql, strategy: Scd2) -> None:
        self.w = job_sql
        self.strategy = strategy
        others = [name for name in job_sql.declared if name not in (*strategy.keys, *strategy.compare)]
        self.others = others
        self.now = instant(job_sql.job.started_at)
        staged, differs = f"s.{_STAGED} IS NOT NULL", job_sql.differ(strategy.compare)
        current = f"coalesce(t.{quote(IS_CURRENT)}, false)"
        self.changed = f"({staged} AND {current} AND {differs})"
        self.refreshed = f"({staged} AND {current} AND NOT {differs} AND {job_sql.differ(others)})"
        self.missing = f"(NOT ({staged}) AND {current})" if strategy.deletes is Deletes.SOFT else "false"
        self.expires = self._expires(staged, current)
        self.closes = f"({self.changed} OR {self.missing} OR {self.expires})"
        self.touches = f"({self.closes} OR {self.refreshed})"
        self.opens = f"({staged} AND ({self.changed} OR (NOT {current} AND NOT {self._held(differs)})))"

    @property
    def ends(self) -> str:
        return plus(f"t.{quote(VALID_FROM)}", self.strategy.ttl) if self.strategy.ttl is not None else "NULL"

    def _expires(self, staged: str, current: str) -> str:
        if self.strategy.ttl is None:
            return "false"
        kept = f"({staged})" if self.strategy.deletes is Deletes.HARD else "true"
        return f"({kept} AND {current} AND NOT {self.changed} AND NOT {self.missing} AND {self.ends} <= {self.now})"

    def _held(self, differs: str) -> str:
        """Return the condition that only its TTL closed the latest version, and the source has the same values."""
        if self.strategy.ttl is None:
            return "false"
        return f"(t.{quote(VALID_FROM)} IS NOT NULL AND t.{quote(VALID_TO)} <=> {self.ends} AND NOT {differs})"

    def old_row(self) -> dict[str, str]:
        def pick(name: str, value: str) -> str:
            return f"CASE WHEN {self.refreshed} THEN {value} ELSE t.{quote(name)} END"

        refreshed = {name: pick(name, f"s.{quote(name)}") for name in self.others}
        loaded = {name: pick(name, value) for name, value in self.w.metadata().items()}
        closed = {
            VALID_TO: f"CASE WHEN {self.changed} OR {self.missing} THEN {self.now} WHEN {self.expires} THEN {self.ends} "
            f"ELSE t.{quote(VALID_TO)} END",
            IS_CURRENT: f"NOT {self.closes}",
        }
        return row_values("t", self.w) | refreshed | loaded | closed

    def old_flags(self) -> dict[str, str]:
        return {"updated": self.refreshed, "closed": self.closes, "missing": self.missing}

    def new_flags(self) -> dict[str, str]:
        return {"inserted": "true", "closed": "true" if _ends_at_once(self.strategy) else "false"}


def _opening(job_sql: LakeJobSql, strategy: Scd2) -> dict[str, str]:
    now = instant(job_sql.job.started_at)
    ended = _ends_at_once(strategy)
    return new_row(
        job_sql,
        **{
            VALID_FROM: now,
            VALID_TO: now if ended else "NULL",
            IS_CURRENT: "false" if ended else "true",
            ROW_HASH: job_sql.row_hash(strategy.compare),
        },
    )


def _ends_at_once(strategy: Scd2) -> bool:
    return strategy.ttl is not None and not strategy.ttl
