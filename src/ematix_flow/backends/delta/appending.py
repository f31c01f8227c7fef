"""Incremental appends: the new rows are written once, as files that one log entry adds to the table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ematix_flow.backends.delta.adding import can_add_typed
from ematix_flow.backends.delta.snapshot import SMALL_ROWS, snapshot_of
from ematix_flow.backends.delta.table import DeltaTable
from ematix_flow.contract.write import Counts, WriteJob
from ematix_flow.families.lake.append import new_rows
from ematix_flow.families.lake.change import Change, StageFolder
from ematix_flow.families.lake.checks import Facts
from ematix_flow.families.lake.columns import Words
from ematix_flow.families.lake.place import local
from ematix_flow.families.lake.session import active, interpreted, on_sail

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NEW = "new"
_JOIN = "merge"  # both sides are one sorted partition; a broadcast would need a job of its own


def append_new(
    table: DeltaTable, job: WriteJob, stage: DataFrame, facts: Facts, watermark: str, folder: StageFolder
) -> Change | None:
    """Return the files of the rows that are later than the watermark or not in the table yet.

    Return None where Spark has to write the table: on Sail, in a bucket, with partitions or special features.
    """
    words = Words(job)
    if on_sail() or not can_add_typed(table.path, words.table):
        return None
    found = snapshot_of(table.path, with_files=True)
    is_small = found is not None and found.is_small and facts.rows <= SMALL_ROWS
    if found is not None and is_small:
        stage, target = stage.coalesce(1).hint(_JOIN), found.read().hint(_JOIN)
    else:
        target = table.read()
    rows = table.typed(new_rows(stage, target, words, facts=facts, watermark=watermark))
    with interpreted(active(), rows=facts.rows):
        written = rows.coalesce(1) if is_small else rows
        kept, told = folder.keep_counted(_NEW, written, ["count(*) AS `inserted`"])
    inserted = int(told["inserted"])
    files = sorted(local(folder.path / _NEW).glob("*.parquet")) if inserted else ()
    return Change("append", kept, Counts(facts.rows, inserted, unchanged=facts.rows - inserted), files=tuple(files))
