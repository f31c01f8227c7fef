"""The files sink: a batch is written beside the table and published by one rename, in a bucket by its commit marker."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ematix_flow.backends.files.codec import in_column_types, read_files, write_files
from ematix_flow.backends.files.commit_markers import CommitMarkers, Instead
from ematix_flow.backends.files.layout import FileLayout, FileLayouts, read_layout, write_layout
from ematix_flow.backends.files.published_batches import (
    batch_folder,
    batches_of,
    outdated_batches,
    read_table,
    rewrite_batches,
    rows_in_footers,
)
from ematix_flow.contract.lane import ArrowStage, TaskInput
from ematix_flow.contract.write import Counts, Stage, WriteJob, WriteSession
from ematix_flow.dataplane.spark_session import active_session, exact_settings
from ematix_flow.dataplane.spark_tasks import watched
from ematix_flow.dataplane.type_mapping import pairs, spark_schema
from ematix_flow.declare.connections import ObjectStoreLocalConnection, ObjectStoreS3Connection
from ematix_flow.declare.strategy import Truncate
from ematix_flow.families.lake.append import append, truncate
from ematix_flow.families.lake.arrow_stage import write_rows
from ematix_flow.families.lake.columns import LakeJobSql
from ematix_flow.families.lake.errors import recognised_errors, translated_errors
from ematix_flow.families.lake.expectations import newest_in_files
from ematix_flow.families.lake.integrity import StageFacts, gather_facts, refuse_violations
from ematix_flow.families.lake.sink import FACTS, LakeSink
from ematix_flow.families.lake.state import LakeLoad
from ematix_flow.families.lake.table_change import StageFolder, TableChange, new_row, row_expressions, with_all_columns
from ematix_flow.foundation.errors import DriftError, MissingColumn, RunFailed, Unsupported
from ematix_flow.foundation.names import did_you_mean
from ematix_flow.storage.os_errors import translated_os_errors
from ematix_flow.storage.paths import (
    LakePath,
    LakeRoot,
    engine_uri,
    exchange_folders,
    move,
    read_text_if_exists,
    require_local,
    undo_exchange,
    write_atomically,
)
from ematix_flow.storage.s3_path import S3Path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


_NOTE = "_load"  # readers skip names that start with an underscore
_REPLACES = "replaces"
_NOT_A_FOLDER = ("bytes", "json", "jsonb", "float", "double")


class FilesSink(LakeSink, ArrowStage):
    """A sink for the folders of files below one path."""

    def __init__(self, connection: ObjectStoreLocalConnection | ObjectStoreS3Connection) -> None:
        resolved = connection.resolved()
        self.lake_root = LakeRoot.of(resolved)
        self._format = resolved.format
        self._layouts = FileLayouts(self.lake_root)

    def stage_of(self, run_id: str, schema: str, table: str) -> LakePath:
        """Return the stage folder; on a local disk beside the table, so that a rename never crosses a file system."""
        if not self.lake_root.is_local:
            return super().stage_of(run_id, schema, table)
        return self.lake_root.table(schema, table).parent / ".flow-stage" / run_id / table

    def _folder(self, job: WriteJob) -> LakePath:
        return self.lake_root.table(job.shape.table.schema, job.shape.table.name)

    def _layout(self, job: WriteJob) -> FileLayout:
        """Return the table's layout with the options of this load; raise DriftError where its files have others."""
        table = job.shape.table
        kept = self._layouts.read((table.schema, table.name)) or FileLayout(self._format, table.columns)
        wanted = _planned_layout(kept, job).with_options(job.write_options)
        for name in wanted.partition_by:
            _check_partition(job, name)
        other = dict(wanted.options) != dict(kept.options)
        if other and not isinstance(job.strategy, Truncate) and batches_of(self._folder(job)):
            raise DriftError(
                f"{table.qualified} holds files written with {_layout_text(kept)}, and this load asks for {_layout_text(wanted)}",
                where=job.shape.declared.where,
                hint='keep the options, or write everything anew with mode="truncate"',
            )
        return wanted

    def arrow_obstacle(self, job: WriteJob) -> str | None:
        """Return why tasks cannot write the batch as Arrow files, None where they can."""
        if not self.lake_root.is_local:
            return "Spark writes into buckets"
        if self._format != "parquet":
            return f"Spark writes {self._format}"
        if not _is_final(job):
            return "Spark leaves out rows that are there, and makes folders of partitions"
        table = job.shape.table
        kept = self._layouts.read((table.schema, table.name))
        if kept is not None and pairs(kept.columns) != pairs(table.columns):
            return "Spark writes the columns that only the files have"
        return None

    def stage_arrow(self, job: WriteJob, tasks: TaskInput) -> Stage:
        """Write the batch in its published form, one file per task."""
        folder, layout = require_local(self.stage_folder(job)), self._layout(job)
        chosen = job.write_options.get("parquet_compression")
        facts = write_rows(tasks, job, folder / "batch", options={"compression": chosen} if chosen else {})
        write_layout(folder / "batch", layout)
        facts.write(folder / FACTS)
        return Stage("", facts.rows, str(folder))

    def stage(self, job: WriteJob, frame: DataFrame) -> Stage:
        """Write the batch in its published form; where rows may have to be left out, plain Parquet first."""
        folder, layout = self.stage_folder(job), self._layout(job)
        self.lake_root.register(frame.sparkSession)
        with recognised_errors(), exact_settings(frame.sparkSession):
            # Rows are counted while they are written: the stage need not be read again.
            counted, facts = gather_facts(watched(frame), job, lambda: self._staged(job, layout))
            if _is_final(job):
                rows = counted.alias("s").selectExpr(*row_expressions(LakeJobSql(job), new_row(LakeJobSql(job))))
                write_files(rows, layout, folder / "batch", job.write_options)
            else:
                counted.write.mode("overwrite").parquet(engine_uri(folder / "rows"))
            stage_facts = facts()
        stage_facts.write(folder / FACTS)
        return Stage("", stage_facts.rows, str(folder))

    def _staged(self, job: WriteJob, layout: FileLayout) -> DataFrame:
        folder = self.stage_folder(job)
        if _is_final(job):
            return read_files(read_layout(folder / "batch") or layout, folder / "batch")
        return (
            active_session()
            .read.schema(spark_schema(pairs(job.shape.declared.columns)))
            .parquet(engine_uri(folder / "rows"))
        )

    def staged(self, job: WriteJob) -> DataFrame:
        return self._staged(job, self._layout(job))

    def published(self, job: WriteJob) -> DataFrame | None:
        layout = self._layouts.read((job.shape.table.schema, job.shape.table.name))
        return read_table(layout, self._folder(job)) if layout is not None else None

    def staged_parquet(self, job: WriteJob) -> Sequence[Path]:
        folder = self.stage_folder(job) / ("batch" if _is_final(job) else "rows")
        if (_is_final(job) and self._format != "parquet") or not isinstance(folder, Path):
            return ()
        return sorted(folder.glob("*.parquet"))

    def newest_published(self, job: WriteJob, column: str) -> Any:
        """Return the newest value of a column; without Spark where possible, because the load may not need Spark."""
        layout = self._layouts.read((job.shape.table.schema, job.shape.table.name))
        folder = self._folder(job)
        if self._format != "parquet" or layout is None or layout.partition_by or not isinstance(folder, Path):
            return super().newest_published(job, column)
        return newest_in_files(
            [file for batch in batches_of(folder) for file in require_local(batch).glob("*.parquet")], column
        )

    def dry_run(self, job: WriteJob, facts: StageFacts, write_session: WriteSession) -> Counts:
        with translated_errors("the dry run"), exact_settings(active_session()):
            return self._planned(job, facts, write_session, self._layout(job)).counts

    def commit(self, job: WriteJob, facts: StageFacts, write_session: WriteSession, load: LakeLoad) -> LakeLoad:
        folder, stage, layout = self._folder(job), self.stage_folder(job), self._layout(job)
        adds = not isinstance(job.strategy, Truncate)
        old = outdated_batches(layout, folder) if adds else []
        with translated_errors(f"publishing {job.shape.table.qualified}"):
            if _is_final(job) and not old:
                counts = self._publish_staged(job, facts, layout)
            else:
                counts = self._publish_computed(job, facts, write_session, layout, old)
        only_adds = adds and not old
        after = {"layout": layout.to_dict(), _REPLACES: not only_adds}
        load = self.announce(job, load, counts, facts=facts, after=after)
        note = json.dumps({"writer": job.writer, **asdict(load)})
        if only_adds and not batches_of(folder):  # the first files determine the options for all reads
            self.finish_load(load)
        if isinstance(folder, Path):
            write_atomically(stage / "batch" / _NOTE, note)
            self._move(require_local(stage), folder, job.run_id, only_adds=only_adds)
        else:
            self._mark(
                CommitMarkers(folder), stage, job.run_id, note, instead=_replaced_batches(folder, old, adds, job.run_id)
            )
        if not only_adds:
            self.finish_load(load)
        return load

    def _move(self, stage: Path, folder: Path, run_id: str, *, only_adds: bool) -> None:
        """Publish by one rename, of the batch or of the whole table."""
        if only_adds:
            move(stage / "batch", batch_folder(folder, run_id))
            return
        move(stage / "batch", batch_folder(stage / "table", run_id))
        with translated_os_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        exchange_folders(stage / "table", folder)

    def _mark(self, marks: CommitMarkers, stage: LakePath, run_id: str, note: str, *, instead: Instead) -> None:
        """Publish by one conditional write of the commit marker, after all files are in their place."""
        if self.hold is None or not isinstance(stage, S3Path):
            raise RunFailed("a batch in a bucket is published under the lock of its table")
        marks.publish(run_id, stage / "batch", note, instead=instead, anew=stage / "table", hold=self.hold)

    def _publish_staged(self, job: WriteJob, facts: StageFacts, layout: FileLayout) -> Counts:
        """Return the counts of a batch that is published as staged, from its facts alone."""
        refuse_violations(facts, lambda: self._staged(job, layout), job)
        counts = Counts(read=facts.rows, inserted=facts.rows)
        if not isinstance(job.strategy, Truncate):
            return counts
        table, folder = job.shape.table, self._folder(job)
        kept = self._layouts.read((table.schema, table.name)) or layout
        existing_rows = rows_in_footers(kept, folder)
        return replace(counts, deleted=read_table(kept, folder).count() if existing_rows is None else existing_rows)

    def _publish_computed(
        self, job: WriteJob, facts: StageFacts, write_session: WriteSession, layout: FileLayout, old: Sequence[LakePath]
    ) -> Counts:
        """Write the rows that are new, rewrite batches of an older layout, and return the counts."""
        stage = self.stage_folder(job)
        with exact_settings(active_session()):
            change = self._planned(job, facts, write_session, layout)
            if not _is_final(job):
                write_files(change.frame, layout, stage / "batch", job.write_options)
            if old:
                rewrite_batches(layout, self._folder(job), old, stage / "table", job.write_options)
        return change.counts

    def _planned(
        self, job: WriteJob, facts: StageFacts, write_session: WriteSession, layout: FileLayout
    ) -> TableChange:
        job_sql, folder = LakeJobSql(job), self._folder(job)
        staged, table = self._staged(job, layout), job.shape.table
        refuse_violations(facts, lambda: staged, job)
        kept = self._layouts.read((table.schema, table.name)) or layout
        target = with_all_columns(read_table(kept, folder), job_sql)
        if isinstance(job.strategy, Truncate):
            return truncate(staged, target, job_sql, staged=facts.rows, existing_rows=rows_in_footers(kept, folder))
        stage = StageFolder(self.stage_folder(job))
        columns = {column.name: column for column in layout.columns}
        # Rows are compared with those of the table, so they are cast to the table's types.
        staged = in_column_types(staged, [columns[name] for name in job_sql.declared])
        return append(staged, target, job_sql, stage, facts=facts, watermark=write_session.watermark)

    def find_load(self, writer: str, load: LakeLoad) -> LakeLoad | None:
        table = self.lake_root.table(load.schema, load.table)
        if isinstance(table, S3Path):
            return _load_of(CommitMarkers(table).note(load.run_id), writer)
        return _load_of(read_text_if_exists(batch_folder(table, load.run_id) / _NOTE), writer)

    def last_load(self, job: WriteJob) -> LakeLoad | None:
        table = self._folder(job)
        if isinstance(table, S3Path):
            notes: Iterable[str | None] = CommitMarkers(table).notes()
        else:
            notes = (read_text_if_exists(batch / _NOTE) for batch in batches_of(table))
        loads = [load for load in (_load_of(note, job.writer) for note in notes) if load is not None]
        return max(loads, key=lambda load: load.sequence, default=None)

    def discard_load(self, load: LakeLoad) -> None:
        """Undo the first rename of an interrupted truncate; in a bucket, abandon the run and delete its copies."""
        table, stage = (
            self.lake_root.table(load.schema, load.table),
            self.stage_of(load.run_id, load.schema, load.table),
        )
        if isinstance(table, Path):
            undo_exchange(require_local(stage) / "table", table)
        elif load.counts is not None:  # it had announced its commit
            with self.lake_root.locked(f"{load.schema}.{load.table}" if load.schema else load.table):
                CommitMarkers(table).discard_run(load.run_id)

    def finish_load(self, load: LakeLoad) -> None:
        """Store the options of the load as the table's layout, and delete the batches it replaced."""
        table = self.lake_root.table(load.schema, load.table)
        if isinstance(table, S3Path) and (load.after or {}).get(_REPLACES):
            CommitMarkers(table).finish(load.run_id)
        kept: Mapping[str, Any] | None = (load.after or {}).get("layout")
        if kept is None:
            return
        written, parts = FileLayout.from_dict(kept), (load.schema, load.table)
        existing = self._layouts.read(parts)
        if existing is None or dict(existing.options) != dict(written.options):
            # Only the DDL changes columns: another process may have added one since.
            self._layouts.write(parts, replace(existing or written, options=written.options))


def _load_of(note: str | None, writer: str) -> LakeLoad | None:
    """Return the load that wrote a batch, None where another writer wrote it."""
    kept: dict[str, Any] = json.loads(note) if note else {}
    return LakeLoad.from_dict({**kept, "published": True}) if kept.get("writer") == writer else None


def _replaced_batches(table: S3Path, old: Sequence[LakePath], adds: bool, run_id: str) -> Instead:
    """Return the batches in a bucket that the load rewrites or, for a truncate, deletes."""
    if adds:
        return {batch.name: CommitMarkers(table).renewed(batch.name, run_id) for batch in old}
    return {batch.name: None for batch in batches_of(table)}


def _planned_layout(kept: FileLayout, job: WriteJob) -> FileLayout:
    """Return the current layout; in a dry run, which changes no schema, with the declared columns."""
    if not job.dry_run:
        return kept
    declared = {column.name: column for column in job.shape.table.columns}
    columns = tuple(declared.pop(column.name, column) for column in kept.columns)
    return replace(kept, columns=columns + tuple(declared.values()))


def _is_final(job: WriteJob) -> bool:
    """Return whether the stage can be published as it is: no row is left out, and values are read back exactly."""
    lossy = job.write_options.get("partition_by") or job.write_options.get("csv_null_value")
    return job.incremental is None and not lossy


def _check_partition(job: WriteJob, name: str) -> None:
    declared = job.shape.declared
    if name not in declared.column_names:
        raise MissingColumn(
            f"partition_by names {name!r}, which {declared.qualified} does not declare",
            where=declared.where,
            hint=did_you_mean(name, declared.column_names),
        )
    kind = declared.column(name).type
    if kind.kind in _NOT_A_FOLDER:
        raise Unsupported(
            f"partition_by {name!r}: a {kind} cannot be the name of a folder",
            where=declared.where,
            hint="choose another column",
        )


def _layout_text(layout: FileLayout) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in sorted(layout.options.items())) or "no options"
