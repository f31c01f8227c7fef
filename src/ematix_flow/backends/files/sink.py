"""The files sink: a batch is written beside the table and published by one rename, in a bucket by its commit marker."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ematix_flow.backends.files.batches import batch_folder, batches_of, outdated, read_table, renew, rows_in_footers
from ematix_flow.backends.files.codec import conformed, read_files, write_files
from ematix_flow.backends.files.layout import Layout, Layouts, note_layout, noted_layout
from ematix_flow.backends.files.marks import Instead, Marks
from ematix_flow.contract.lane import Tasks
from ematix_flow.contract.write import Counts, Opening, Stage, WriteJob
from ematix_flow.declare.strategy import Truncate
from ematix_flow.families.frames import pairs, spark_schema
from ematix_flow.families.lake.append import append, truncate
from ematix_flow.families.lake.arrow_stage import write_rows
from ematix_flow.families.lake.change import Change, StageFolder, completed, image, new_row
from ematix_flow.families.lake.checking import newest_in_files
from ematix_flow.families.lake.checks import Facts, gathering, refuse_broken
from ematix_flow.families.lake.columns import Words
from ematix_flow.families.lake.errors import recognising, translating
from ematix_flow.families.lake.place import (
    LakePath,
    Place,
    exchange,
    explained,
    local,
    move,
    put_back,
    read_if_there,
    uri,
    write_atomically,
)
from ematix_flow.families.lake.s3.path import S3Path
from ematix_flow.families.lake.session import active, exactly
from ematix_flow.families.lake.sink import FACTS, LakeSink
from ematix_flow.families.lake.staging import watched
from ematix_flow.families.lake.state import Load
from ematix_flow.foundation.errors import DriftError, MissingColumn, RunFailed, Unsupported
from ematix_flow.foundation.names import did_you_mean

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ematix_flow.declare.connections import ObjectStoreLocalConnection, ObjectStoreS3Connection

_NOTE = "_load"  # readers skip names that start with an underscore
_REPLACES = "replaces"
_NOT_A_FOLDER = ("bytes", "json", "jsonb", "float", "double")


class FilesSink(LakeSink):
    """A sink for the folders of files below one path."""

    def __init__(self, connection: ObjectStoreLocalConnection | ObjectStoreS3Connection) -> None:
        resolved = connection.resolved()
        self.place = Place.of(resolved)
        self._format = resolved.format
        self._layouts = Layouts(self.place)

    def stage_of(self, run_id: str, schema: str, table: str) -> LakePath:
        """Return the stage folder; on a local disk beside the table, so that a rename never crosses a file system."""
        if not self.place.is_local:
            return super().stage_of(run_id, schema, table)
        return self.place.table(schema, table).parent / ".flow-stage" / run_id / table

    def _folder(self, job: WriteJob) -> LakePath:
        return self.place.table(job.shape.table.schema, job.shape.table.name)

    def _layout(self, job: WriteJob) -> Layout:
        """Return the table's layout with the options of this load; raise DriftError where its files have others."""
        table = job.shape.table
        kept = self._layouts.read((table.schema, table.name)) or Layout(self._format, table.columns)
        wanted = _planned_layout(kept, job).with_options(job.write_options)
        for name in wanted.partition_by:
            _check_partition(job, name)
        other = dict(wanted.options) != dict(kept.options)
        if other and not isinstance(job.strategy, Truncate) and batches_of(self._folder(job)):
            raise DriftError(
                f"{table.qualified} holds files written with {_shown(kept)}, and this load asks for {_shown(wanted)}",
                where=job.shape.declared.where,
                hint='keep the options, or write everything anew with mode="truncate"',
            )
        return wanted

    def arrow_obstacle(self, job: WriteJob) -> str | None:
        """Return why tasks cannot write the batch as Arrow files, None where they can."""
        if not self.place.is_local:
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

    def stage_arrow(self, job: WriteJob, tasks: Tasks) -> Stage:
        """Write the batch in its published form, one file per task."""
        folder, layout = local(self.stage_folder(job)), self._layout(job)
        chosen = job.write_options.get("parquet_compression")
        facts = write_rows(tasks, job, folder / "batch", options={"compression": chosen} if chosen else {})
        note_layout(folder / "batch", layout)
        facts.write(folder / FACTS)
        return Stage("", facts.rows, str(folder))

    def stage(self, job: WriteJob, frame: DataFrame) -> Stage:
        """Write the batch in its published form; where rows may have to be left out, plain Parquet first."""
        folder, layout = self.stage_folder(job), self._layout(job)
        self.place.meet(frame.sparkSession)
        with recognising(), exactly(frame.sparkSession):
            # Rows are counted while they are written: the stage need not be read again.
            counted, facts = gathering(watched(frame), job, lambda: self._staged(job, layout))
            if _is_final(job):
                rows = counted.alias("s").selectExpr(*image(Words(job), new_row(Words(job))))
                write_files(rows, layout, folder / "batch", job.write_options)
            else:
                counted.write.mode("overwrite").parquet(uri(folder / "rows"))
            found = facts()
        found.write(folder / FACTS)
        return Stage("", found.rows, str(folder))

    def _staged(self, job: WriteJob, layout: Layout) -> DataFrame:
        folder = self.stage_folder(job)
        if _is_final(job):
            return read_files(noted_layout(folder / "batch") or layout, folder / "batch")
        return active().read.schema(spark_schema(pairs(job.shape.declared.columns))).parquet(uri(folder / "rows"))

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
            [file for batch in batches_of(folder) for file in local(batch).glob("*.parquet")], column
        )

    def rehearse(self, job: WriteJob, facts: Facts, opening: Opening) -> Counts:
        with translating("the rehearsal"), exactly(active()):
            return self._planned(job, facts, opening, self._layout(job)).counts

    def commit(self, job: WriteJob, facts: Facts, opening: Opening, load: Load) -> Load:
        folder, stage, layout = self._folder(job), self.stage_folder(job), self._layout(job)
        adds = not isinstance(job.strategy, Truncate)
        old = outdated(layout, folder) if adds else []
        with translating(f"publishing {job.shape.table.qualified}"):
            if _is_final(job) and not old:
                counts = self._whole(job, facts, layout)
            else:
                counts = self._worked_out(job, facts, opening, layout, old)
        only_adds = adds and not old
        after = {"layout": layout.to_dict(), _REPLACES: not only_adds}
        load = self.announce(job, load, counts, facts=facts, after=after)
        note = json.dumps({"writer": job.writer, **asdict(load)})
        if only_adds and not batches_of(folder):  # the first files determine the options for all reads
            self.finish_load(load)
        if isinstance(folder, Path):
            write_atomically(stage / "batch" / _NOTE, note)
            self._move(local(stage), folder, job.run_id, only_adds=only_adds)
        else:
            self._mark(Marks(folder), stage, job.run_id, note, instead=_instead(folder, old, adds, job.run_id))
        if not only_adds:
            self.finish_load(load)
        return load

    def _move(self, stage: Path, folder: Path, run_id: str, *, only_adds: bool) -> None:
        """Publish by one rename, of the batch or of the whole table."""
        if only_adds:
            move(stage / "batch", batch_folder(folder, run_id))
            return
        move(stage / "batch", batch_folder(stage / "table", run_id))
        with explained(folder):
            folder.mkdir(parents=True, exist_ok=True)
        exchange(stage / "table", folder)

    def _mark(self, marks: Marks, stage: LakePath, run_id: str, note: str, *, instead: Instead) -> None:
        """Publish by one conditional write of the commit marker, after all files are in their place."""
        if self.hold is None or not isinstance(stage, S3Path):
            raise RunFailed("a batch in a bucket is published under the lock of its table")
        marks.publish(run_id, stage / "batch", note, instead=instead, anew=stage / "table", hold=self.hold)

    def _whole(self, job: WriteJob, facts: Facts, layout: Layout) -> Counts:
        """Return the counts of a batch that is published as staged, from its facts alone."""
        refuse_broken(facts, lambda: self._staged(job, layout), job)
        counts = Counts(read=facts.rows, inserted=facts.rows)
        if not isinstance(job.strategy, Truncate):
            return counts
        table, folder = job.shape.table, self._folder(job)
        kept = self._layouts.read((table.schema, table.name)) or layout
        there = rows_in_footers(kept, folder)
        return replace(counts, deleted=read_table(kept, folder).count() if there is None else there)

    def _worked_out(
        self, job: WriteJob, facts: Facts, opening: Opening, layout: Layout, old: Sequence[LakePath]
    ) -> Counts:
        """Write the rows that are new, rewrite batches of an older layout, and return the counts."""
        stage = self.stage_folder(job)
        with exactly(active()):
            change = self._planned(job, facts, opening, layout)
            if not _is_final(job):
                write_files(change.frame, layout, stage / "batch", job.write_options)
            if old:
                renew(layout, self._folder(job), old, stage / "table", job.write_options)
        return change.counts

    def _planned(self, job: WriteJob, facts: Facts, opening: Opening, layout: Layout) -> Change:
        words, folder = Words(job), self._folder(job)
        staged, table = self._staged(job, layout), job.shape.table
        refuse_broken(facts, lambda: staged, job)
        kept = self._layouts.read((table.schema, table.name)) or layout
        target = completed(read_table(kept, folder), words)
        if isinstance(job.strategy, Truncate):
            return truncate(staged, target, words, staged=facts.rows, there=rows_in_footers(kept, folder))
        stage = StageFolder(self.stage_folder(job))
        there = {column.name: column for column in layout.columns}
        # Rows are compared with those of the table, so they are cast to the table's types.
        staged = conformed(staged, [there[name] for name in words.declared])
        return append(staged, target, words, stage, facts=facts, watermark=opening.watermark)

    def find_load(self, writer: str, load: Load) -> Load | None:
        table = self.place.table(load.schema, load.table)
        if isinstance(table, S3Path):
            return _load_of(Marks(table).note(load.run_id), writer)
        return _load_of(read_if_there(batch_folder(table, load.run_id) / _NOTE), writer)

    def last_load(self, job: WriteJob) -> Load | None:
        table = self._folder(job)
        if isinstance(table, S3Path):
            notes: Iterable[str | None] = Marks(table).notes()
        else:
            notes = (read_if_there(batch / _NOTE) for batch in batches_of(table))
        loads = [load for load in (_load_of(note, job.writer) for note in notes) if load is not None]
        return max(loads, key=lambda load: load.sequence, default=None)

    def forget_load(self, load: Load) -> None:
        """Undo the first rename of an interrupted truncate; in a bucket, abandon the run and delete its copies."""
        table, stage = self.place.table(load.schema, load.table), self.stage_of(load.run_id, load.schema, load.table)
        if isinstance(table, Path):
            put_back(local(stage) / "table", table)
        elif load.counts is not None:  # it had announced its commit
            with self.place.locked(f"{load.schema}.{load.table}" if load.schema else load.table):
                Marks(table).give_up(load.run_id)

    def finish_load(self, load: Load) -> None:
        """Store the options of the load as the table's layout, and delete the batches it replaced."""
        table = self.place.table(load.schema, load.table)
        if isinstance(table, S3Path) and (load.after or {}).get(_REPLACES):
            Marks(table).finish(load.run_id)
        kept: Mapping[str, Any] | None = (load.after or {}).get("layout")
        if kept is None:
            return
        written, parts = Layout.from_dict(kept), (load.schema, load.table)
        there = self._layouts.read(parts)
        if there is None or dict(there.options) != dict(written.options):
            # Only the DDL changes columns: another process may have added one since.
            self._layouts.write(parts, replace(there or written, options=written.options))


def _load_of(note: str | None, writer: str) -> Load | None:
    """Return the load that wrote a batch, None where another writer wrote it."""
    kept: dict[str, Any] = json.loads(note) if note else {}
    return Load.from_dict({**kept, "published": True}) if kept.get("writer") == writer else None


def _instead(table: S3Path, old: Sequence[LakePath], adds: bool, run_id: str) -> Instead:
    """Return the batches in a bucket that the load rewrites or, for a truncate, deletes."""
    if adds:
        return {batch.name: Marks(table).renewed(batch.name, run_id) for batch in old}
    return {batch.name: None for batch in batches_of(table)}


def _planned_layout(kept: Layout, job: WriteJob) -> Layout:
    """Return the current layout; in a dry run, which changes no schema, with the declared columns."""
    if not job.rehearsal:
        return kept
    declared = {column.name: column for column in job.shape.table.columns}
    there = tuple(declared.pop(column.name, column) for column in kept.columns)
    return replace(kept, columns=there + tuple(declared.values()))


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


def _shown(layout: Layout) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in sorted(layout.options.items())) or "no options"
