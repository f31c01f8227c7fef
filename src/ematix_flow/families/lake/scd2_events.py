"""scd2 by event time: the table is a pure function of the set of observations, which are stored beside it.

The observations of a load are written first, with its run id; those of a run that died before its publish are deleted
by the next run. So the table's own commit decides which observations count.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ematix_flow.contract.shape import IS_CURRENT, ROW_HASH, VALID_FROM, VALID_TO, TargetShape
from ematix_flow.contract.write import Counts
from ematix_flow.dataplane.type_mapping import pairs, spark_schema, spark_type
from ematix_flow.declare.strategy import Deletes, Scd2
from ematix_flow.declare.table import TableSpec
from ematix_flow.declare.types import UUID, Column
from ematix_flow.families.lake.columns import ROWS_SO_FAR, LakeJobSql, instant, plus, to_instant
from ematix_flow.families.lake.scd2 import deleted_keys, expired_versions
from ematix_flow.families.lake.table_change import (
    DELETE,
    WRITE,
    ActionCounts,
    ChangeDraft,
    StageFolder,
    TableChange,
    action,
    row_expressions,
)
from ematix_flow.families.sql import scd2_events as sql_events
from ematix_flow.families.sql.scd2_events import GONE, HASH, OBSERVED
from ematix_flow.families.violations import check_deletes, check_forgotten
from ematix_flow.foundation.lazy_imports import f
from ematix_flow.sql.spark_text import quote, text_literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RUN = "_run_id"
OBSERVATIONS = "observations"  # the stage's folder of new observations


def observations_of(shape: TargetShape) -> TableSpec:
    """Return the observations table, each observation with the run that wrote it."""
    spec = sql_events.observations_of(shape)
    return replace(spec, columns=(*spec.columns, Column(UUID(), nullable=False, name=RUN)))


def _as_it_is(frame: DataFrame) -> DataFrame:
    return frame


@dataclass(frozen=True)
class NewObservations:
    """Observations that are not stored yet; `staged` of them are rows of the stage, the others are deletions."""

    rows: DataFrame
    staged: int


class Events:
    """One load of events: its new observations, and the versions that follow from them.

    `side` is applied to frames before they are joined.
    """

    def __init__(
        self,
        job_sql: LakeJobSql,
        strategy: Scd2,
        folder: StageFolder,
        *,
        side: Callable[[DataFrame], DataFrame] = _as_it_is,
    ) -> None:
        self.w = job_sql
        self.strategy = strategy
        self.folder = folder
        self._side = side
        self._keys = [quote(key) for key in strategy.keys]

    def new_observations(
        self, stage: DataFrame, target: DataFrame, known: DataFrame, *, staged: int
    ) -> NewObservations:
        """Return new observations of the stage and soft-deleted missing keys; write them to the stage folder."""
        observations = self._unknown(stage, known)
        if self.strategy.deletes is not None:
            current = target.where(quote(IS_CURRENT))
            missing = self._missing(stage, current)
            if self.strategy.deletes is Deletes.SOFT:
                check_deletes(self.w.job, staged=staged, existing=current.count(), missing=missing.count())
                observations = self._side(observations.unionByName(self._deleted_keys(missing)))
            else:
                check_forgotten(
                    self.w.job, staged=staged, current=current.count, missing=missing.count(),
                    versions=target.count, deleted=self._missing(stage, target).count(),
                )  # fmt: skip
        return self._stored(observations)

    def first_observations(self, stage: DataFrame) -> NewObservations:
        """Return the same for a table without rows or observations, where nothing is compared."""
        return self._stored(self._observations_in(stage))

    def _stored(self, observations: DataFrame) -> NewObservations:
        schema = spark_schema(pairs(observations_of(self.w.job.shape).columns))
        kept, answers = self.folder.write_counted(
            OBSERVATIONS, observations, [f"count_if(NOT {quote(GONE)}) AS `staged`"], schema
        )
        return NewObservations(self._side(kept), int(answers["staged"]))

    def change(
        self,
        stage: DataFrame,
        target: DataFrame,
        known: DataFrame,
        new: NewObservations,
        *,
        staged: int,
        is_empty: bool,
    ) -> TableChange:
        """Return the computed actions of `draft`; only rows to append where the table `is_empty`."""
        table_change = self.draft(stage, target, known, new, staged=staged).to_change(target, self.folder)
        if is_empty:
            return replace(
                table_change, how="append", frame=table_change.frame.selectExpr(*(quote(name) for name in self.w.table))
            )
        return table_change

    def draft(
        self, stage: DataFrame, target: DataFrame, known: DataFrame, new: NewObservations, *, staged: int
    ) -> ChangeDraft:
        """Return the actions that bring the versions of every touched key to the computed state."""
        touched = self._side(new.rows.selectExpr(*self._keys).distinct()).alias("s")
        same_key = f.expr(self.w.equal(self.strategy.keys))
        remembered = self._side(known.unionByName(new.rows, allowMissingColumns=True))
        versions = self._versions(remembered.alias("t").join(touched, same_key, "left_semi"))
        present = target.alias("t").join(touched, same_key, "left_semi")
        actions = self._differences(versions, present)
        if self.strategy.ttl is not None:
            others = target.where(quote(IS_CURRENT)).alias("t").join(touched, same_key, "left_anti")
            if self.strategy.deletes is Deletes.HARD:
                others = others.alias("t").join(stage.selectExpr(*self._keys).alias("s"), same_key, "left_semi")
            actions = actions.unionByName(expired_versions(others, self.w, self.strategy))
        if self.strategy.deletes is Deletes.HARD:
            actions = actions.unionByName(deleted_keys(stage, target, self.w, self.strategy))
        return self._drafted(actions, new, staged=staged)

    def first_draft(self, new: NewObservations, *, staged: int) -> ChangeDraft:
        """Return the actions of `draft` for a table without rows or observations: every version is new."""
        w = self.w
        computed = {
            name: f"s.{quote(name)}"
            for name in (*w.job.shape.stored_columns, VALID_FROM, VALID_TO, IS_CURRENT, ROW_HASH)
        }
        versions = self._versions(self._side(new.rows)).alias("s")
        actions = versions.selectExpr(
            *row_expressions(w, computed | w.metadata()), *action(WRITE, {"inserted": "true"})
        )
        return self._drafted(actions, new, staged=staged)

    def _drafted(self, actions: DataFrame, new: NewObservations, *, staged: int) -> ChangeDraft:
        def counts(tally: ActionCounts, existing: Callable[[], int]) -> Counts:
            return Counts(staged, tally.inserted, tally.updated, staged - new.staged, tally.closed, tally.deleted)

        return ChangeDraft(actions, self.w.table, (*self.strategy.keys, VALID_FROM), quote(IS_CURRENT), counts)

    def seeded(self, target: DataFrame) -> DataFrame:
        """Return existing versions as observations at their valid_from, to continue a history by processing time."""
        kept = self.w.job.shape.stored_columns
        selected = [f"{quote(name if name in kept else VALID_FROM)} AS {quote(name)}" for name in self.w.declared]
        rows = target.selectExpr(*selected, f"{VALID_FROM} AS {OBSERVED}").alias("t")
        values = {name: f"t.{quote(name)}" for name in (*self.w.declared, OBSERVED)} | {
            GONE: "false",
            HASH: self.w.row_hash(self.w.declared, alias="t"),
        }
        return self.folder.write("seed", rows.selectExpr(*self._observation(values)))

    def _observations_in(self, stage: DataFrame) -> DataFrame:
        """Return each observation of the stage once."""
        event = self.strategy.event_time or ""
        moment = to_instant(f"s.{quote(event)}", self.w.column(event).type)
        values = {name: f"s.{quote(name)}" for name in self.w.declared} | {
            OBSERVED: moment,
            GONE: "false",
            HASH: self.w.row_hash(self.w.declared),
        }
        rows = stage.alias("s").selectExpr(*self._observation(values))
        return self._side(rows.dropDuplicates([*self.strategy.keys, HASH]))

    def _unknown(self, stage: DataFrame, known: DataFrame) -> DataFrame:
        same = f"{self.w.equal(self.strategy.keys)} AND t.{HASH} = s.{HASH}"
        return self._observations_in(stage).alias("s").join(known.alias("t"), f.expr(same), "left_anti")

    def _missing(self, stage: DataFrame, versions: DataFrame) -> DataFrame:
        keys = stage.selectExpr(*self._keys).alias("s")
        return versions.alias("t").join(keys, f.expr(self.w.equal(self.strategy.keys)), "left_anti")

    def _deleted_keys(self, missing: DataFrame) -> DataFrame:
        """Return a deletion observation, at the time of the load, for each key missing from the snapshot."""
        values = {key: f"t.{quote(key)}" for key in self.strategy.keys} | {
            OBSERVED: instant(self.w.job.started_at),
            GONE: "true",
            HASH: f"unhex(sha2({text_literal(self.w.job.run_id)}, 256))",
        }
        return missing.alias("t").selectExpr(*self._observation(values))

    def _observation(self, values: dict[str, str]) -> list[str]:
        values = values | {RUN: text_literal(self.w.job.run_id)}
        return [
            f"CAST({values.get(column.name, 'NULL')} AS {spark_type(column.type)}) AS {quote(column.name)}"
            for column in observations_of(self.w.job.shape).columns
        ]

    def _versions(self, observed: DataFrame) -> DataFrame:
        """Compute the versions: one observation per instant (the largest hash wins a tie), equal neighbours merged."""
        w, keys = self.w, ", ".join(self._keys)
        names = ", ".join(quote(name) for name in w.job.shape.stored_columns)
        query = f"""
            WITH o AS (SELECT o.*, {w.row_hash(self.strategy.compare, alias="o")} AS __flow_h FROM {{observed}} AS o),
            d AS (SELECT o.*, row_number() OVER (PARTITION BY {keys}, {OBSERVED} ORDER BY {GONE}, {HASH} DESC {ROWS_SO_FAR}) AS __flow_rn FROM o),
            g AS (SELECT d.*, lag(__flow_h) OVER (PARTITION BY {keys} ORDER BY {OBSERVED}) AS __flow_ph,
                  lag({GONE}) OVER (PARTITION BY {keys} ORDER BY {OBSERVED}) AS __flow_pg FROM d WHERE __flow_rn = 1),
            r AS (SELECT g.*, sum(CASE WHEN __flow_ph IS NULL OR __flow_ph <> __flow_h OR __flow_pg <> {GONE} THEN 1 ELSE 0 END)
                  OVER (PARTITION BY {keys} ORDER BY {OBSERVED} ROWS UNBOUNDED PRECEDING) AS __flow_run FROM g),
            x AS (SELECT r.*, row_number() OVER (PARTITION BY {keys}, __flow_run ORDER BY {OBSERVED} DESC) AS __flow_newest,
                  min({OBSERVED}) OVER (PARTITION BY {keys}, __flow_run) AS __flow_starts FROM r),
            v AS (SELECT x.*, lead(__flow_starts) OVER (PARTITION BY {keys} ORDER BY __flow_starts) AS __flow_next_starts FROM x WHERE __flow_newest = 1),
            e AS (SELECT v.*, {self._ends()} AS __flow_ends FROM v WHERE NOT {GONE})
            SELECT {names}, __flow_starts AS {VALID_FROM}, __flow_ends AS {VALID_TO}, __flow_ends IS NULL AS {IS_CURRENT}, __flow_h AS {ROW_HASH} FROM e"""
        return observed.sparkSession.sql(query, observed=observed)

    def _ends(self) -> str:
        if self.strategy.ttl is None:
            return "__flow_next_starts"
        expiry, now = plus("__flow_starts", self.strategy.ttl), instant(self.w.job.started_at)
        return f"CASE WHEN {expiry} <= {now} AND (__flow_next_starts IS NULL OR {expiry} < __flow_next_starts) THEN {expiry} ELSE __flow_next_starts END"

    def _differences(self, versions: DataFrame, present: DataFrame) -> DataFrame:
        w, keys = self.w, self.strategy.keys
        same = f"{w.equal(keys)} AND t.{VALID_FROM} = s.{VALID_FROM}"
        joined = versions.alias("s").join(present.alias("t"), f.expr(same), "full")
        absent, vanished = f"t.{VALID_FROM} IS NULL", f"s.{VALID_FROM} IS NULL"
        kept = w.job.shape.stored_columns
        written = [name for name in (*kept, VALID_TO, IS_CURRENT, ROW_HASH) if name not in keys]
        closes = f"({absent}) IS FALSE AND ({vanished}) IS FALSE AND t.{IS_CURRENT} AND NOT s.{IS_CURRENT}"
        computed = {name: f"s.{quote(name)}" for name in (*kept, VALID_FROM, VALID_TO, IS_CURRENT, ROW_HASH)}
        values = {
            name: f"CASE WHEN {vanished} THEN t.{quote(name)} ELSE {value} END"
            for name, value in (computed | w.metadata()).items()
        }
        flags = {"inserted": absent, "closed": closes, "updated": f"({absent}) IS FALSE AND NOT ({closes})"}
        kind = f"CASE WHEN {vanished} THEN {DELETE} ELSE {WRITE} END"
        changed = joined.where(f"{absent} OR {vanished} OR {w.differ(written)}")
        return changed.selectExpr(*row_expressions(w, values), *action(kind, flags))
