"""CDC: row changes applied by key (write, delete, mark as deleted) unless the target has applied newer ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ematix_flow.contract.cdc import DELETE as GONE
from ematix_flow.contract.cdc import (
    EVENT_MS,
    EVENTS,
    GATE,
    KEPT,
    KEY,
    OPERATION,
    POSITION,
    READ,
    kept_columns_condition,
    stale_sql,
)
from ematix_flow.contract.write import Counts
from ematix_flow.dataplane.type_mapping import spark_type
from ematix_flow.declare.strategy import Changes
from ematix_flow.families.lake.columns import LakeJobSql
from ematix_flow.families.lake.integrity import check_keys
from ematix_flow.families.lake.table_change import (
    DELETE,
    WRITE,
    StageFolder,
    TableChange,
    action,
    new_row,
    row_expressions,
    row_values,
)
from ematix_flow.foundation.lazy_imports import f
from ematix_flow.sql.spark_text import quote, text_literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_THERE, _STALE, _LATE, _LATER = "__flow_there", "__flow_stale", "__flow_late", "__flow_later"
GATE_KEYS = ("pipeline_name", "pk_json")


def apply_changes(
    stage: DataFrame, target: DataFrame, cdc_watermarks: DataFrame, job_sql: LakeJobSql, strategy: Changes, folder: StageFolder, *,
    staged: int,
) -> tuple[TableChange, TableChange]:  # fmt: skip
    """Return the change of the table, and the change of its CDC watermark table, which must be committed first.

    After a crash between both commits the micro-batch is applied again: its changes are not older than what the CDC
    watermark table then holds for them.
    """
    check_keys(stage, job_sql.job, strategy.keys)
    judged = folder.write("judged", _with_staleness(stage, cdc_watermarks, strategy))
    of_stale = (f"sum(if({_STALE} AND {one}, {EVENTS}, 0))" for one in ("true", _LATE, _LATER))
    *sums, kept = judged.selectExpr(f"count_if({_STALE})", *of_stale, f"collect_set({KEPT})").collect()[0]
    rows, stale, late, contradicted = (int(value or 0) for value in sums)
    fresh = judged.where(f"NOT {_STALE}")
    actions, tally = folder.write_actions(_written(fresh, target, job_sql, strategy, kept))
    counts = Counts(
        staged, tally.inserted, tally.updated, staged - rows - tally.inserted - tally.updated - tally.deleted,
        deleted=tally.deleted, stale=stale, late=late, contradicted=contradicted,
    )  # fmt: skip
    return TableChange("merge", actions, counts, strategy.keys), _gate_rows(fresh, strategy, folder, staged)


def _with_staleness(stage: DataFrame, cdc_watermarks: DataFrame, strategy: Changes) -> DataFrame:
    """Return every staged row with the flags: stale, late, with a later clock."""
    known = cdc_watermarks.where(f"pipeline_name = {text_literal(strategy.gate)}").alias("g")
    moment, place = f"s.{EVENT_MS}", f"s.{POSITION}"
    stale = f"coalesce({stale_sql('g.last_seen_ts_ms', 'g.source_position', moment, place)}, false)"
    late = f"coalesce(g.last_seen_ts_ms - {moment} > {strategy.tolerance_ms}, false)"
    later = f"coalesce({moment} - g.last_seen_ts_ms > {strategy.tolerance_ms}, false)"
    joined = stage.alias("s").join(known, f.expr(f"g.pk_json = s.{KEY}"), "left")
    return joined.selectExpr("s.*", f"{stale} AS {_STALE}", f"{late} AS {_LATE}", f"{later} AS {_LATER}")


def _written(
    fresh: DataFrame, target: DataFrame, job_sql: LakeJobSql, strategy: Changes, kept: Sequence[str]
) -> DataFrame:
    soft = [strategy.soft] if strategy.soft else []
    t = target.selectExpr("*", f"true AS {_THERE}").alias("t")
    joined = fresh.alias("s").join(t, f.expr(job_sql.equal(strategy.keys)), "left")
    absent, goes = f"t.{_THERE} IS NULL", f"s.{OPERATION} = '{GONE}'"
    marked = " OR ".join(f"NOT (t.{quote(name)} <=> s.{quote(name)})" for name in soft) or "true"
    keeps = {name: f"coalesce(s.{KEPT} IN ({', '.join(map(text_literal, sets))}), false)" for name in job_sql.table
             if (sets := kept_columns_condition(kept, name))}  # fmt: skip
    compared = [*strategy.compare, *soft]
    differs = " OR ".join(
        [job_sql.differ([name for name in compared if name not in keeps]),
         *(f"(NOT {keeps[name]} AND {job_sql.differ([name])})" for name in compared if name in keeps)]
    )  # fmt: skip
    happens = f"CASE WHEN {goes} THEN NOT ({absent}) AND ({marked}) ELSE {absent} OR ({differs}) END"
    inserted = new_row(job_sql)
    changed = {name: f"s.{quote(name)}" for name in [*strategy.update, *soft]} | job_sql.metadata()
    changed |= {
        name: f"CASE WHEN {keeps[name]} THEN t.{quote(name)} ELSE {value} END" for name, value in changed.items() if name in keeps
    }  # fmt: skip
    retired = {name: f"s.{quote(name)}" for name in soft} | job_sql.metadata() if soft else {}
    values = {
        name: f"CASE WHEN {absent} THEN {inserted.get(name, 'NULL')} "
        f"WHEN {goes} THEN {retired.get(name, old)} ELSE {changed.get(name, old)} END"
        for name, old in row_values("t", job_sql).items()
    }
    kind = WRITE if soft else f"CASE WHEN {goes} THEN {DELETE} ELSE {WRITE} END"
    flags = {"inserted": absent, "updated": f"NOT ({absent}) AND NOT ({goes})", "deleted": goes}
    return joined.where(happens).selectExpr(*row_expressions(job_sql, values), *action(kind, flags))


def _gate_rows(fresh: DataFrame, strategy: Changes, folder: StageFolder, staged: int) -> TableChange:
    """Return the newest change of each key, except snapshot rows, whose time is not that of a change."""
    values = {
        "pipeline_name": text_literal(strategy.gate), "pk_json": KEY, "last_seen_ts_ms": f"coalesce({EVENT_MS}, 0)", "source_position": POSITION,
        "updated_at": "current_timestamp()",
    }  # fmt: skip
    with_time = fresh.where(f"({EVENT_MS} IS NOT NULL OR {POSITION} IS NOT NULL) AND {OPERATION} <> '{READ}'")
    selected = [f"CAST({values[one.name]} AS {spark_type(one.type)}) AS {quote(one.name)}" for one in GATE.columns]
    rows = folder.write("remembered", with_time.selectExpr(*selected, *action(WRITE, {})))
    return TableChange("merge", rows, Counts(read=staged), GATE_KEYS)
