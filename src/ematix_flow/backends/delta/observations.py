"""The table of observations beside a history by event time: each observed row with the id of the run that wrote it.

Observations are written before the table that they explain. Those of a run that never published are removed by its run
id, which is also in the names of the files that were added without a Spark job.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ematix_flow.backends.delta import adding
from ematix_flow.backends.delta.ddl import DeltaDdl, create_table
from ematix_flow.backends.delta.library import footer
from ematix_flow.backends.delta.snapshot import snapshot_of
from ematix_flow.backends.delta.table import DeltaTable
from ematix_flow.contract.shape import TargetShape
from ematix_flow.contract.write import WriteJob
from ematix_flow.families.frames import pairs, spark_schema, spark_type
from ematix_flow.families.lake.change import StageFolder
from ematix_flow.families.lake.columns import Words
from ematix_flow.families.lake.place import local
from ematix_flow.families.lake.scd2_events import OBSERVATIONS, RUN, observations_of
from ematix_flow.families.lake.session import active, quote, text
from ematix_flow.families.sql.observations import missing_steps
from ematix_flow.families.sql.scd2_events import GONE, HASH

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
        found = snapshot_of(self.table.path, with_files=True)
        columns = tuple(pairs(observations_of(self.job.shape).columns))
        if found is None or not found.is_small or not adding.can_add(self.table.path, columns):
            return None
        return self._complete(found.read(), set(found.schema.names)), found.rows or 0

    def _none(self) -> DataFrame:
        return active().createDataFrame([], spark_schema(pairs(observations_of(self.job.shape).columns)))

    def _complete(self, kept: DataFrame, there: set[str]) -> DataFrame:
        from pyspark.sql.functions import expr

        columns = observations_of(self.job.shape).columns
        missing = [column for column in columns if column.name not in there]
        added = [f"CAST(NULL AS {spark_type(column.type)}) AS {quote(column.name)}" for column in missing]
        named = [quote(column.name) for column in columns if column.name in there]
        known = kept.where(f"{RUN} <> {text(self.job.run_id)}").selectExpr(*named, *added)
        # The hash covers columns added later, so that an observation repeated with them counts as the same one.
        hashed = Words(self.job).row_hash(self.job.shape.declared.column_names, alias="o")
        return known.alias("o").withColumn(HASH, expr(f"CASE WHEN {GONE} THEN {HASH} ELSE {hashed} END"))

    def remember(self, new: DataFrame, folder: StageFolder) -> None:
        """Append observations with Spark."""
        self._create()
        self.table.append(new, folder)

    def remember_files(self, folder: StageFolder) -> None:
        """Add the observations in the stage folder by a log entry, file by file."""
        self._create()
        files = [file for file in sorted(local(folder.path / OBSERVATIONS).glob("*.parquet")) if footer(file).num_rows]
        if files:
            adding.add_files(self.table.path, files, how="append", token=None, note=None, run_id=self.job.run_id)

    def _create(self) -> None:
        if not self.table.exists:
            create_table(self.table, observations_of(self.job.shape))


def take_back(table: DeltaTable, run_id: str) -> None:
    """Remove the observations of a run that did not publish."""
    if not table.exists:
        return
    mine = f"{RUN} = {text(run_id)}"
    if _may_hold(table, run_id) and not table.read().where(mine).isEmpty():
        table.delete(mine)
    if isinstance(table.path, Path):
        adding.take_back(table.path, run_id)


def _may_hold(table: DeltaTable, run_id: str) -> bool:
    """Return whether the table may contain rows of the run: a file has its id in the name, or the id of no run."""
    found = snapshot_of(table.path, with_files=True)
    if found is None:
        return True
    return any(adding.run_of(name) in (run_id, None) for name in found.paths)
