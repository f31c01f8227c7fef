"""Incremental appends: the new rows are written once, as files that one log entry adds to the table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ematix_flow.backends.delta.add_files import can_add_typed
from ematix_flow.backends.delta.snapshot import SMALL_ROWS, snapshot_of
from ematix_flow.backends.delta.table import DeltaTable
from ematix_flow.contract.write import Counts, WriteJob
from ematix_flow.dataplane.spark_session import active_session, interpreted_settings, is_active_session_sail
from ematix_flow.families.lake.append import new_rows
from ematix_flow.families.lake.columns import LakeJobSql
from ematix_flow.families.lake.integrity import StageFacts
from ematix_flow.families.lake.table_change import StageFolder, TableChange
from ematix_flow.storage.paths import require_local

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NEW = "new"
_JOIN = "merge"  # both sides are one sorted partition; a broadcast would need a job of its own


def append_new(
    table: DeltaTable, job: WriteJob, stage: DataFrame, facts: StageFacts, watermark: str, folder: StageFolder
) -> TableChange | None:
    """Return the files of the rows that are later than the watermark or not in the table yet.

    Return None where Spark has to write the table: on Sail, in a bucket, with partitions or special features.
    """
    job_sql = LakeJobSql(job)
    if is_active_session_sail() or not can_add_typed(table.path, job_sql.table):
        return None
    snapshot = snapshot_of(table.path, with_files=True)
    is_small = snapshot is not None and snapshot.is_small and facts.rows <= SMALL_ROWS
    if snapshot is not None and is_small:
        stage, target = stage.coalesce(1).hint(_JOIN), snapshot.read().hint(_JOIN)
    else:
        target = table.read()
    rows = table.typed(new_rows(stage, target, job_sql, facts=facts, watermark=watermark))
    with interpreted_settings(active_session(), rows=facts.rows):
        written = rows.coalesce(1) if is_small else rows
        kept, counts = folder.write_counted(_NEW, written, ["count(*) AS `inserted`"])
    inserted = int(counts["inserted"])
    files = sorted(require_local(folder.path / _NEW).glob("*.parquet")) if inserted else ()
    return TableChange(
        "append", kept, Counts(facts.rows, inserted, unchanged=facts.rows - inserted), files=tuple(files)
    )
