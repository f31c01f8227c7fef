"""Loads into small tables: one Spark job writes the resulting rows as plain Parquet, then a log entry commits them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ematix_flow.backends.delta import snapshot
from ematix_flow.backends.delta.snapshot import DeltaSnapshot, snapshot_of
from ematix_flow.contract.write import Counts, WriteJob
from ematix_flow.declare.strategy import Merge, Scd2
from ematix_flow.families.lake.columns import LakeJobSql
from ematix_flow.families.lake.integrity import check_keys, repeated_keys
from ematix_flow.families.lake.merge import draft_merge
from ematix_flow.families.lake.scd2 import draft_scd2
from ematix_flow.families.lake.scd2_events import Events
from ematix_flow.families.lake.small_table_rewrite import NEW, OLD, PART, RewriteResult, rewrite_rows
from ematix_flow.families.lake.table_change import ChangeDraft, StageFolder, TableChange, action_columns
from ematix_flow.storage.paths import LakePath, engine_uri, remove, require_local

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ematix_flow.backends.delta.observations import Observations

_CONTENT = "content"
_JOIN = "merge"  # both sides are one sorted partition; a broadcast would need a job of its own


@dataclass(frozen=True)
class TableRewrite:
    """Files to add to one version of a table, or to replace all its files with."""

    onto: Any
    files: tuple[Path, ...]
    how: str
    counts: Counts


def rewrite_load(
    table: LakePath, job: WriteJob, stage: DataFrame, staged: int, folder: StageFolder
) -> TableRewrite | None:
    """Return the result of a load; None where the table is not small, or its own MERGE has to report the error.

    Raise DuplicateKeys and Brake like a load into any other table.
    """
    strategy = job.strategy
    is_meant = isinstance(strategy, Merge) or (isinstance(strategy, Scd2) and not strategy.event_time)
    snapshot = _small(table, job.shape.table.column_names, staged) if is_meant else None
    if snapshot is None:
        return None
    rows, target = stage.coalesce(1), snapshot.read()
    keys, draft = _draft_actions(job, rows.hint(_JOIN), target.hint(_JOIN), staged)
    outcome = _written(rewrite_rows(target, draft, snapshot.schema, twice=repeated_keys(rows, keys), keys=keys), folder)
    if outcome.twice:
        check_keys(stage, job, keys)
    return None if outcome.unclear else _rewrite_outcome(snapshot, draft, outcome, folder)


def rewrite_events(
    table: LakePath, observed: Observations, job: WriteJob, stage: DataFrame, staged: int, folder: StageFolder
) -> TableRewrite | None:
    """Return the result of a load into a history by event time, whose new observations are in the stage folder."""
    snapshot, known = _small(table, job.shape.table.column_names, staged), observed.known_if_small()
    if (
        snapshot is None or known is None or (snapshot.rows and not known[1])
    ):  # rows without observations need these first
        return None
    assert isinstance(job.strategy, Scd2)  # noqa: S101  the caller's match
    events = Events(LakeJobSql(job), job.strategy, folder, side=_one_sorted)
    if not snapshot.rows and not known[1]:
        draft = events.first_draft(events.first_observations(_one_sorted(stage)), staged=staged)
        outcome = _written(rewrite_rows(None, draft, snapshot.schema), folder)
    else:
        rows, target, remembered = (_one_sorted(frame) for frame in (stage, snapshot.read(), known[0]))
        new = events.new_observations(rows, target, remembered, staged=staged)
        draft = events.draft(rows, target, remembered, new, staged=staged)
        outcome = _written(rewrite_rows(target, draft, snapshot.schema), folder)
    return None if outcome.unclear else _rewrite_outcome(snapshot, draft, outcome, folder)


def _one_sorted(frame: DataFrame) -> DataFrame:
    return frame.coalesce(1).hint(_JOIN)


def rewrite_by(table: LakePath, change: TableChange, folder: StageFolder) -> TableRewrite | None:
    """Return the result of a change that is already computed; None where the table's own MERGE has to apply it."""
    columns = tuple(action_columns(change.frame))
    snapshot = _small(table, columns, change.counts.read)
    if snapshot is None:
        return None
    draft = ChangeDraft(change.frame, columns, change.match, "true", lambda tally, existing: change.counts)
    outcome = _written(rewrite_rows(snapshot.read(), draft, snapshot.schema), folder)
    return None if outcome.unclear else _rewrite_outcome(snapshot, draft, outcome, folder)


def _small(table: LakePath, columns: Collection[str], rows: int) -> DeltaSnapshot | None:
    """Return the table if one task can process it with this many more rows, and it can be committed without Spark."""
    newest = snapshot_of(table, with_files=True) if rows <= snapshot.SMALL_ROWS else None
    if newest is None or not newest.is_small or not newest.has_plain_columns:
        return None
    return newest if set(columns) <= set(newest.schema.names) else None


def _draft_actions(
    job: WriteJob, stage: DataFrame, target: DataFrame, staged: int
) -> tuple[tuple[str, ...], ChangeDraft]:
    job_sql = LakeJobSql(job)
    match job.strategy:
        case Merge() as strategy:
            return strategy.keys, draft_merge(stage, target, job_sql, strategy, staged=staged)
        case Scd2() as strategy:
            return strategy.keys, draft_scd2(stage, target, job_sql, strategy, staged=staged)
        case strategy:
            raise AssertionError(strategy)


def _written(content: tuple[DataFrame, Callable[[], RewriteResult]], folder: StageFolder) -> RewriteResult:
    rows, outcome = content
    remove(folder.path / _CONTENT)  # an earlier attempt may have left files of a part that this one does not have
    rows.write.mode("overwrite").partitionBy(PART).parquet(engine_uri(folder.path / _CONTENT))
    return outcome()


def _rewrite_outcome(
    snapshot: DeltaSnapshot, draft: ChangeDraft, outcome: RewriteResult, folder: StageFolder
) -> TableRewrite:
    """Return the files written; new rows alone make an append, so that streams reading the table continue."""
    counts = draft.counts(outcome.tally, lambda: outcome.alive)
    content, parts = require_local(folder.path / _CONTENT), (OLD, NEW) if outcome.touched else (NEW,)
    files = [file for part in parts for file in sorted((content / f"{PART}={part}").glob("*.parquet"))]
    return TableRewrite(snapshot.opened, tuple(files), "overwrite" if outcome.touched else "append", counts)
