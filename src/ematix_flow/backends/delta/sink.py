"""The Delta sink: rows are staged as Parquet once, then the table changes by one commit that contains the token."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from ematix_flow.backends.delta.add_files import can_add, remove_files_of_run
from ematix_flow.backends.delta.compaction import compact, is_due
from ematix_flow.backends.delta.ddl import DeltaDdl, create_table
from ematix_flow.backends.delta.incremental_append import append_new
from ematix_flow.backends.delta.observations import Observations
from ematix_flow.backends.delta.observations import remove_files_of_run as take_back_observations
from ematix_flow.backends.delta.small_tables import TableRewrite, rewrite_events, rewrite_load
from ematix_flow.backends.delta.table import DeltaTable
from ematix_flow.contract.cdc import GATE
from ematix_flow.contract.lane import ArrowStage, TaskInput
from ematix_flow.contract.write import Counts, Stage, WriteJob, WriteResult, WriteSession
from ematix_flow.dataplane.spark_session import active_session, exact_settings, interpreted_settings
from ematix_flow.dataplane.spark_tasks import watched
from ematix_flow.dataplane.type_mapping import pairs, spark_schema
from ematix_flow.declare.connections import DeltaLocalConnection, DeltaS3Connection
from ematix_flow.declare.strategy import Append, Changes, Deletes, Merge, Scd2, Truncate
from ematix_flow.families.lake.append import append, complete_rows, truncate
from ematix_flow.families.lake.arrow_stage import write_rows
from ematix_flow.families.lake.cdc import apply_changes
from ematix_flow.families.lake.columns import LakeJobSql
from ematix_flow.families.lake.errors import recognised_errors, translated_errors
from ematix_flow.families.lake.integrity import StageFacts, gather_facts, refuse_violations
from ematix_flow.families.lake.merge import merge
from ematix_flow.families.lake.scd2 import scd2
from ematix_flow.families.lake.scd2_events import Events
from ematix_flow.families.lake.sink import FACTS, LakeSink, already_taken
from ematix_flow.families.lake.state import LakeLoad, WriterState
from ematix_flow.families.lake.table_change import StageFolder, TableChange, with_all_columns
from ematix_flow.foundation import fault
from ematix_flow.foundation.errors import DriftError, LeaseHeld
from ematix_flow.storage.paths import LakePath, LakeRoot, engine_uri, require_local

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


_ROWS = "rows"
_WHOLE = "whole"  # marker file: the staged files contain every column of the table


class DeltaSink(LakeSink, ArrowStage):
    """A sink for the Delta tables below one path."""

    def __init__(self, connection: DeltaLocalConnection | DeltaS3Connection) -> None:
        self.lake_root = LakeRoot.of(connection)
        self._ddl = DeltaDdl(connection)

    def _table(self, schema: str, name: str) -> DeltaTable:
        return DeltaTable(self.lake_root.table(schema, name))

    def _target(self, job: WriteJob) -> DeltaTable:
        return self._table(job.shape.table.schema, job.shape.table.name)

    def _observations(self, schema: str, table: str) -> DeltaTable:
        return self._table(schema, f"{table}__observations")

    def _observed(self, job: WriteJob) -> Observations:
        return Observations(self._observations(job.shape.table.schema, job.shape.table.name), job)

    def arrow_obstacle(self, job: WriteJob) -> str | None:
        """Return why tasks cannot write the stage as Arrow files, None where they can."""
        if not self.lake_root.is_local:
            return "Spark writes into buckets"
        return "Spark makes folders of partitions" if job.write_options.get("partition_by") else None

    def stage_arrow(self, job: WriteJob, tasks: TaskInput) -> Stage:
        """Write the rows as whole table rows; where nothing has to be compared, these files become the table's own."""
        path = require_local(self.stage_folder(job))
        facts = write_rows(tasks, job, path / _ROWS)
        facts.write(path / FACTS)
        (path / _WHOLE).touch()
        return Stage("", facts.rows, str(path))

    def stage(self, job: WriteJob, frame: DataFrame) -> Stage:
        """Write the rows to the stage once, counting them and collecting rule violations."""
        path = self.stage_folder(job)
        self.lake_root.register(frame.sparkSession)
        with recognised_errors(), exact_settings(frame.sparkSession):
            self._set_partitions(job)
            facts = self._stage_once(job, watched(frame), path)
        facts.write(path / FACTS)
        return Stage("", facts.rows, str(path))

    def _stage_once(self, job: WriteJob, frame: DataFrame, path: LakePath) -> StageFacts:
        """Write and count the rows; a plain append writes whole table rows, so that the table can adopt the files."""
        counted, facts = gather_facts(frame, job, lambda: self._staged(job))
        is_plain = isinstance(job.strategy, Append) and not job.write_options.get("partition_by")
        rows = complete_rows(counted, LakeJobSql(job)) if is_plain else counted
        rows.write.mode("overwrite").parquet(engine_uri(path / _ROWS))
        if is_plain and isinstance(path, Path):
            (path / _WHOLE).touch()
        return facts()

    def _staged(self, job: WriteJob) -> DataFrame:
        schema = spark_schema(pairs(job.shape.declared.columns))
        return active_session().read.schema(schema).parquet(engine_uri(self.stage_folder(job) / _ROWS))

    def staged(self, job: WriteJob) -> DataFrame:
        return self._staged(job)

    def staged_parquet(self, job: WriteJob) -> Sequence[Path]:
        rows = self.stage_folder(job) / _ROWS
        return sorted(rows.glob("*.parquet")) if isinstance(rows, Path) else ()

    def published(self, job: WriteJob) -> DataFrame | None:
        table = self._target(job)
        return table.read() if table.exists else None

    def _set_partitions(self, job: WriteJob) -> None:
        """Recreate an empty table with the target's partition columns; raise DriftError where it has files already."""
        wanted = list(job.write_options.get("partition_by") or ())
        table = self._target(job)
        if not wanted or job.dry_run or not table.exists:
            return
        partitions, files = table.layout()
        if partitions == wanted:
            return
        if files:
            raise DriftError(
                f"{job.shape.table.qualified} is partitioned by ({', '.join(partitions)}), "
                f"asked for is ({', '.join(wanted)})",
                hint="set partition_by to what is there, or copy the table by hand",
            )
        create_table(table, job.shape.table, partition_by=wanted)

    def dry_run(self, job: WriteJob, facts: StageFacts, write_session: WriteSession) -> Counts:
        with translated_errors("the dry run"), exact_settings(active_session()):
            return self._planned(job, facts, write_session)[0].counts

    def commit(self, job: WriteJob, facts: StageFacts, write_session: WriteSession, load: LakeLoad) -> LakeLoad:
        table = self._target(job)
        if self._can_add(job, write_session):
            return self._add(job, facts, write_session, load)
        with translated_errors(f"publishing {job.shape.table.qualified}"), exact_settings(active_session()):
            by_events = _goes_by_events(job)
            if by_events:
                take_back_observations(self._observed(job).table, job.run_id)
                self._observed(job).follow(self._ddl)
            rewritten = self._rewritten(job, facts, by_events=by_events)
            if rewritten is not None:
                load = self.announce(job, load, rewritten.counts, facts=facts, after=_after(job, rewritten.counts))
                if by_events:
                    self._observed(job).remember_files(StageFolder(self.stage_folder(job)))
                    fault.point("after_observations")
                added = table.add(rewritten.files, rewritten.how, writer=job.writer, load=load, onto=rewritten.onto)
                return load if added else self._refuse(job, write_session, load)
            before = table.version()
            change, remembered = self._planned(job, facts, write_session)
            load = self.announce(job, load, change.counts, facts=facts, after=_after(job, change.counts))
            if isinstance(remembered, TableChange):
                self._keep_gate(job, remembered, load)
            elif remembered is not None:
                self._observed(job).remember(remembered, StageFolder(self.stage_folder(job)))
            if change.how == "merge" and table.version() != before:
                raise LeaseHeld(f"another writer changed {job.shape.table.qualified} meanwhile; nothing was loaded",
                                hint="run it again")  # fmt: skip
            if not table.change(change, writer=job.writer, load=load, folder=StageFolder(self.stage_folder(job))):
                self._refuse(job, write_session, load)
        return load

    def _rewritten(self, job: WriteJob, facts: StageFacts, *, by_events: bool) -> TableRewrite | None:
        """Return the files of a small table after the load; None where the table changes in another way."""
        stage, table, folder = self._staged(job), self._target(job).path, StageFolder(self.stage_folder(job))
        refuse_violations(facts, lambda: stage, job)
        with interpreted_settings(active_session(), rows=facts.rows):
            if by_events:
                return rewrite_events(table, self._observed(job), job, stage, facts.rows, folder)
            return rewrite_load(table, job, stage, facts.rows, folder)

    def _refuse(self, job: WriteJob, write_session: WriteSession, load: LakeLoad) -> NoReturn:
        """Replace a state that is older than the table by the table's own last load, then raise LeaseHeld."""
        self.state.write(job.writer, WriterState(self._target(job).last_load_of(job.writer), pending=load))
        raise already_taken(write_session)

    def _can_add(self, job: WriteJob, write_session: WriteSession) -> bool:
        """Return whether staged files can be committed as they are: nothing to compare, whole rows, equal types."""
        compared = job.incremental is not None and write_session.watermark is not None
        plain = isinstance(job.strategy, Truncate) or (isinstance(job.strategy, Append) and not compared)
        if not plain or not self.lake_root.is_local or not (self.stage_folder(job) / _WHOLE).exists():
            return False
        return can_add(self._target(job).folder, tuple(pairs(job.shape.table.columns)))

    def _add(self, job: WriteJob, facts: StageFacts, write_session: WriteSession, load: LakeLoad) -> LakeLoad:
        table, emptied = self._target(job), isinstance(job.strategy, Truncate)
        with translated_errors(f"publishing {job.shape.table.qualified}"), exact_settings(active_session()):
            refuse_violations(facts, lambda: self._staged(job), job)
            deleted = table.count() if emptied else 0
            counts = Counts(read=facts.rows, inserted=facts.rows, deleted=deleted)
            load = self.announce(job, load, counts, facts=facts, after=None)
            files = self.staged_parquet(job) if facts.rows else ()
            if not table.add(files, "overwrite" if emptied else "append", writer=job.writer, load=load):
                self._refuse(job, write_session, load)
        return load

    def _planned(
        self, job: WriteJob, facts: StageFacts, write_session: WriteSession
    ) -> tuple[TableChange, DataFrame | TableChange | None]:
        """Return the change, and what is written before it: observations, or the change of the CDC watermark table."""
        job_sql, folder = LakeJobSql(job), StageFolder(self.stage_folder(job))
        stage, staged = self._staged(job), facts.rows
        refuse_violations(facts, lambda: stage, job)
        appended = self._appended(job, stage, facts, write_session)
        if appended is not None:
            return appended, None
        target = with_all_columns(self._target(job).read(), job_sql)
        match job.strategy:
            case Append():
                return append(stage, target, job_sql, folder, facts=facts, watermark=write_session.watermark), None
            case Truncate():
                return truncate(stage, target, job_sql, staged=staged), None
            case Merge() as strategy:
                is_empty = self._target(job).is_empty()
                return merge(stage, target, job_sql, strategy, folder, staged=staged, is_empty=is_empty), None
            case Changes() as strategy:
                return apply_changes(stage, target, self._gate_rows(job), job_sql, strategy, folder, staged=staged)
            case Scd2(event_time=None) as strategy:
                is_empty = self._target(job).is_empty()
                return scd2(stage, target, job_sql, strategy, folder, staged=staged, is_empty=is_empty), None
            case Scd2() as strategy:
                return self._events(stage, target, Events(job_sql, strategy, folder), job, staged=staged)

    def _appended(
        self, job: WriteJob, stage: DataFrame, facts: StageFacts, write_session: WriteSession
    ) -> TableChange | None:
        """Return the change of an incremental append that needs no Spark commit; None for any other load."""
        is_compared = job.incremental is not None and write_session.watermark is not None and not job.dry_run
        if not isinstance(job.strategy, Append) or not is_compared or not self.lake_root.is_local:
            return None
        folder = StageFolder(self.stage_folder(job))
        return append_new(self._target(job), job, stage, facts, write_session.watermark or "", folder)

    def _gate(self, job: WriteJob) -> DeltaTable:
        """Return the CDC watermark table, with the newest change of each key; the target's lock covers it as well."""
        return self._table(job.shape.table.schema, f"{job.shape.table.name}__{GATE.name}")

    def _gate_rows(self, job: WriteJob) -> DataFrame:
        cdc_watermarks = self._gate(job)
        return (
            cdc_watermarks.read()
            if cdc_watermarks.exists
            else active_session().createDataFrame([], spark_schema(pairs(GATE.columns)))
        )

    def _keep_gate(self, job: WriteJob, remembered: TableChange, load: LakeLoad) -> None:
        cdc_watermarks = self._gate(job)
        if not cdc_watermarks.exists:
            create_table(cdc_watermarks, GATE)
        folder = StageFolder(self.stage_folder(job) / GATE.name)
        cdc_watermarks.change(remembered, writer=job.writer, load=load, folder=folder)
        fault.point("after_gate")

    def _events(
        self, stage: DataFrame, target: DataFrame, events: Events, job: WriteJob, *, staged: int
    ) -> tuple[TableChange, DataFrame]:
        known = self._observed(job).known()
        is_empty = self._target(job).is_empty()
        seed = events.seeded(target) if not is_empty and known.isEmpty() else None
        known = known if seed is None else seed
        new = events.new_observations(stage, target, known, staged=staged)
        change = events.change(stage, target, known, new, staged=staged, is_empty=is_empty)
        return change, new.rows if seed is None else new.rows.unionByName(seed)

    def find_load(self, writer: str, load: LakeLoad) -> LakeLoad | None:
        table = self._table(load.schema, load.table)
        with translated_errors(f"reading the history of {load.table}"):
            return table.load_of(load.run_id) if table.exists else None

    def last_load(self, job: WriteJob) -> LakeLoad | None:
        table = self._target(job)
        with translated_errors(f"reading the history of {job.shape.table.qualified}"):
            return table.last_load_of(job.writer) if table.exists else None

    def last_sequences(self, schema: str, table: str, *, prefix: str, suffix: str) -> dict[str, int]:
        """Return the last sequences of writers with such names, also from the table's own log."""
        delta = self._table(schema, table)
        last = super().last_sequences(schema, table, prefix=prefix, suffix=suffix)
        with translated_errors(f"reading the history of {table}"):
            for _, kept in delta.commits() if delta.exists else ():
                writer = str(kept.get("writer", ""))
                if writer.startswith(prefix) and writer.endswith(suffix):
                    last[writer] = max(last.get(writer, 0), int(kept["sequence"]))
        return last

    def discard_load(self, load: LakeLoad) -> None:
        if self.lake_root.is_local:  # in a bucket the files stay for VACUUM: a request under way may still commit them
            remove_files_of_run(self._table(load.schema, load.table).folder, load.run_id)
        with translated_errors("taking back observations"):
            take_back_observations(self._observations(load.schema, load.table), load.run_id)

    def settle(
        self, job: WriteJob, write_session: WriteSession, result: WriteResult | None, error: str | None
    ) -> WriteResult | None:
        """Settle as every lake sink does; every few versions, also compact small files."""
        settled = super().settle(job, write_session, result, error)
        if result is not None and error is None and not job.dry_run:
            beside = [self._observed(job).table] if _goes_by_events(job) else []
            for table in (self._target(job), *beside):
                if is_due(table.version()):
                    with self.lake_root.locked(job.shape.declared.qualified):
                        compact(table.path)
        return settled

    def finish_load(self, load: LakeLoad) -> None:
        """Delete the observations of keys whose last version was deleted, where the load requires it."""
        keys = (load.after or {}).get("forget")
        if keys:
            with translated_errors("forgetting observations of deleted keys"):
                folder = StageFolder(self.stage_of(load.run_id, load.schema, load.table))
                observed = self._observations(load.schema, load.table)
                observed.keep_keys_of(self._table(load.schema, load.table), keys, folder)


def _goes_by_events(job: WriteJob) -> bool:
    return isinstance(job.strategy, Scd2) and job.strategy.event_time is not None


def _after(job: WriteJob, counts: Counts) -> dict[str, list[str]] | None:
    strategy = job.strategy
    if isinstance(strategy, Scd2) and strategy.event_time and strategy.deletes is Deletes.HARD and counts.deleted:
        return {"forget": list(strategy.keys)}
    return None
