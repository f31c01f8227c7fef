"""The table of observations beside a history by event time: each observed row with the id of the run that wrote it.

Observations are written before the table that they explain. Those of a run that never published are removed by its run
id, which is also in the names of the files that were added without a Spark job.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ematix_flow.backends.delta import add_files
from ematix_flow.backends.delta.ddl import DeltaDdl, create_table
from ematix_flow.backends.delta.delta_rs import parquet_footer
from ematix_flow.backends.delta.snapshot import snapshot_of
from ematix_flow.backends.delta.table import DeltaTable
from ematix_flow.contract.shape import TargetShape
from ematix_flow.contract.write import WriteJob
from ematix_flow.dataplane.spark_session import active_session
from ematix_flow.dataplane.type_mapping import pairs, spark_schema, spark_type
from ematix_flow.families.lake.columns import LakeJobSql
from ematix_flow.families.lake.scd2_events import OBSERVATIONS, RUN, observations_of
from ematix_flow.families.lake.table_change import StageFolder
from ematix_flow.families.sql.observations import missing_steps
from ematix_flow.families.sql.scd2_events import GONE, HASH
from ematix_flow.foundation.lazy_imports import f
from ematix_flow.sql.spark_text import quote, text_literal
from ematix_flow.storage.paths import require_local

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Observations:
    """The observations of one target during one load."""

    table: DeltaTable
    job: WriteJob

    def follow(self, ddl: DeltaDdl) -> None:
        """Add to the observations the columns and types that the target has gained since."""
        spec = observations_of(self.job.shape)
        shape = TargetShape(spec, spec)
        state = ddl.inspect(shape)
        if state is not None:
            ddl.apply(shape, missing_steps(ddl, self.job.shape, shape, state))

    def known(self) -> DataFrame:
        """Return the observations of published loads, without those of an earlier attempt of this run."""
        if not self.table.exists:
            return self._none()
        kept = self.table.read()
        return self._complete(kept, set(kept.columns))

    def known_if_small(self) -> tuple[DataFrame, int] | None:
        """Return the same as one partition, with their row count, without a Spark job; None where that is not possible.

        Observations of an earlier attempt of this run must have been removed before.
        """
        if not self.table.exists:
            return self._none().coalesce(1), 0
        snapshot = snapshot_of(self.table.path, with_files=True)
        columns = tuple(pairs(observations_of(self.job.shape).columns))
        if snapshot is None or not snapshot.is_small or not add_files.can_add(self.table.path, columns):
            return None
        return self._complete(snapshot.read(), set(snapshot.schema.names)), snapshot.rows or 0

    def _none(self) -> DataFrame:
        return active_session().createDataFrame([], spark_schema(pairs(observations_of(self.job.shape).columns)))

    def _complete(self, kept: DataFrame, existing: set[str]) -> DataFrame:
        columns = observations_of(self.job.shape).columns
        missing = [column for column in columns if column.name not in existing]
        added = [f"CAST(NULL AS {spark_type(column.type)}) AS {quote(column.name)}" for column in missing]
        named = [quote(column.name) for column in columns if column.name in existing]
        known = kept.where(f"{RUN} <> {text_literal(self.job.run_id)}").selectExpr(*named, *added)
        # The hash covers columns added later, so that an observation repeated with them counts as the same one.
        hashed = LakeJobSql(self.job).row_hash(self.job.shape.declared.column_names, alias="o")
        return known.alias("o").withColumn(HASH, f.expr(f"CASE WHEN {GONE} THEN {HASH} ELSE {hashed} END"))

    def remember(self, new: DataFrame, folder: StageFolder) -> None:
        """Append observations with Spark."""
        self._create()
        self.table.append(new, folder)

    def remember_files(self, folder: StageFolder) -> None:
        """Add the observations in the stage folder by a log entry, file by file."""
        self._create()
        files = [
            file
            for file in sorted(require_local(folder.path / OBSERVATIONS).glob("*.parquet"))
            if parquet_footer(file).num_rows
        ]
        if files:
            add_files.add_files(self.table.path, files, how="append", token=None, note=None, run_id=self.job.run_id)

    def _create(self) -> None:
        if not self.table.exists:
            create_table(self.table, observations_of(self.job.shape))


def remove_files_of_run(table: DeltaTable, run_id: str) -> None:
    """Remove the observations of a run that did not publish."""
    if not table.exists:
        return
    mine = f"{RUN} = {text_literal(run_id)}"
    if _may_contain_run(table, run_id) and not table.read().where(mine).isEmpty():
        table.delete(mine)
    if isinstance(table.path, Path):
        add_files.remove_files_of_run(table.path, run_id)


def _may_contain_run(table: DeltaTable, run_id: str) -> bool:
    """Return whether the table may contain rows of the run: a file has its id in the name, or the id of no run."""
    snapshot = snapshot_of(table.path, with_files=True)
    if snapshot is None:
        return True
    return any(add_files.run_of(name) in (run_id, None) for name in snapshot.paths)
