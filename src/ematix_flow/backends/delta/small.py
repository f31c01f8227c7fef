"""Loads into small tables: one Spark job writes the resulting rows as plain Parquet, then a log entry commits them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ematix_flow.backends.delta import snapshot
from ematix_flow.backends.delta.snapshot import Snapshot, snapshot_of
from ematix_flow.contract.write import Counts, WriteJob
from ematix_flow.declare.strategy import Merge, Scd2
from ematix_flow.families.lake.change import Change, Draft, StageFolder, rows_of
from ematix_flow.families.lake.checks import check_keys, repeated
from ematix_flow.families.lake.columns import Words
from ematix_flow.families.lake.merge import draft_merge
from ematix_flow.families.lake.place import LakePath, local, remove, uri
from ematix_flow.families.lake.rewriting import NEW, OLD, PART, Outcome, rewritten
from ematix_flow.families.lake.scd2 import draft_scd2
from ematix_flow.families.lake.scd2_events import Events

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ematix_flow.backends.delta.observations import Observations

_CONTENT = "content"
_JOIN = "merge"  # both sides are one sorted partition; a broadcast would need a job of its own


@dataclass(frozen=True)
class Rewrite:
    """Files to add to one version of a table, or to replace all its files with."""

    onto: Any
    files: tuple[Path, ...]
    how: str
    counts: Counts


def rewrite_load(table: LakePath, job: WriteJob, stage: DataFrame, staged: int, folder: StageFolder) -> Rewrite | None:
    """Return the result of a load; None where the table is not small, or its own MERGE has to report the error.

    Raise DuplicateKeys and Brake like a load into any other table.
    """
    strategy = job.strategy
    is_meant = isinstance(strategy, Merge) or (isinstance(strategy, Scd2) and not strategy.event_time)
    found = _small(table, job.shape.table.column_names, staged) if is_meant else None
    if found is None:
        return None
    rows, target = stage.coalesce(1), found.read()
    keys, draft = _drafted(job, rows.hint(_JOIN), target.hint(_JOIN), staged)
    outcome = _written(rewritten(target, draft, found.schema, twice=repeated(rows, keys), keys=keys), folder)
    if outcome.twice:
        check_keys(stage, job, keys)
    return None if outcome.unclear else _outcome(found, draft, outcome, folder)


def rewrite_events(
    table: LakePath, observed: Observations, job: WriteJob, stage: DataFrame, staged: int, folder: StageFolder
) -> Rewrite | None:
    """Return the result of a load into a history by event time, whose new observations are in the stage folder."""
    found, known = _small(table, job.shape.table.column_names, staged), observed.known_if_small()
    if found is None or known is None or (found.rows and not known[1]):  # rows without observations need these first
        return None
    assert isinstance(job.strategy, Scd2)  # noqa: S101  the caller's match
    events = Events(Words(job), job.strategy, folder, side=_one_sorted)
    if not found.rows and not known[1]:
        draft = events.first_draft(events.first_observations(_one_sorted(stage)), staged=staged)
        outcome = _written(rewritten(None, draft, found.schema), folder)
    else:
        rows, target, remembered = (_one_sorted(frame) for frame in (stage, found.read(), known[0]))
        new = events.new_observations(rows, target, remembered, staged=staged)
        draft = events.draft(rows, target, remembered, new, staged=staged)
        outcome = _written(rewritten(target, draft, found.schema), folder)
    return None if outcome.unclear else _outcome(found, draft, outcome, folder)


def _one_sorted(frame: DataFrame) -> DataFrame:
    return frame.coalesce(1).hint(_JOIN)


def rewrite_by(table: LakePath, change: Change, folder: StageFolder) -> Rewrite | None:
    """Return the result of a change that is already computed; None where the table's own MERGE has to apply it."""
    columns = tuple(rows_of(change.frame))
    found = _small(table, columns, change.counts.read)
    if found is None:
        return None
    draft = Draft(change.frame, columns, change.match, "true", lambda tally, existing: change.counts)
    outcome = _written(rewritten(found.read(), draft, found.schema), folder)
    return None if outcome.unclear else _outcome(found, draft, outcome, folder)


def _small(table: LakePath, columns: Collection[str], rows: int) -> Snapshot | None:
    """Return the table if one task can process it with this many more rows, and it can be committed without Spark."""
    found = snapshot_of(table, with_files=True) if rows <= snapshot.SMALL_ROWS else None
    if found is None or not found.is_small or not found.has_plain_columns:
        return None
    return found if set(columns) <= set(found.schema.names) else None


def _drafted(job: WriteJob, stage: DataFrame, target: DataFrame, staged: int) -> tuple[tuple[str, ...], Draft]:
    words = Words(job)
    match job.strategy:
        case Merge() as strategy:
            return strategy.keys, draft_merge(stage, target, words, strategy, staged=staged)
        case Scd2() as strategy:
            return strategy.keys, draft_scd2(stage, target, words, strategy, staged=staged)
        case strategy:
            raise AssertionError(strategy)


def _written(content: tuple[DataFrame, Callable[[], Outcome]], folder: StageFolder) -> Outcome:
    rows, outcome = content
    remove(folder.path / _CONTENT)  # an earlier attempt may have left files of a part that this one does not have
    rows.write.mode("overwrite").partitionBy(PART).parquet(uri(folder.path / _CONTENT))
    return outcome()


def _outcome(found: Snapshot, draft: Draft, outcome: Outcome, folder: StageFolder) -> Rewrite:
    """Return the files written; new rows alone make an append, so that streams reading the table continue."""
    counts = draft.counts(outcome.tally, lambda: outcome.alive)
    content, parts = local(folder.path / _CONTENT), (OLD, NEW) if outcome.touched else (NEW,)
    files = [file for part in parts for file in sorted((content / f"{PART}={part}").glob("*.parquet"))]
    return Rewrite(found.opened, tuple(files), "overwrite" if outcome.touched else "append", counts)
