"""A table as its published batches: each records its layout, and all are read with the table's current columns."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ematix_flow.backends.files.codec import in_column_types, read_batches, stored_form, write_batches
from ematix_flow.backends.files.commit_markers import CommitMarkers
from ematix_flow.backends.files.layout import BATCH, FileLayout, read_layout, write_layout
from ematix_flow.dataplane.spark_session import active_session
from ematix_flow.dataplane.type_mapping import pairs, spark_schema
from ematix_flow.foundation.lazy_imports import pq
from ematix_flow.storage.object_store import in_parallel
from ematix_flow.storage.os_errors import translated_os_errors
from ematix_flow.storage.paths import LakePath
from ematix_flow.storage.s3_path import S3Path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# A batch never changes, and reading each layout file in a bucket costs a request.
_noted: dict[S3Path, FileLayout | None] = {}
_MOST_NOTED = 100_000


def batches_of(table: LakePath) -> Sequence[LakePath]:
    """Return the published batches of a table."""
    return CommitMarkers(table).batches() if isinstance(table, S3Path) else sorted(table.glob(f"{BATCH}=*"))


def batch_folder(table: Path, run_id: str) -> Path:
    """Return the folder with the rows of one published run."""
    return table / f"{BATCH}={run_id}"


def read_table(layout: FileLayout, table: LakePath) -> DataFrame:
    """Return every published row of a table."""
    batches = batches_of(table)
    if not batches:
        return active_session().createDataFrame([], spark_schema(pairs(layout.columns)))
    return read_some(layout, table, batches, whole=isinstance(table, Path)).drop(BATCH)


def rows_in_footers(layout: FileLayout, table: LakePath) -> int | None:
    """Return the number of rows from Parquet footers, None for other formats and in buckets."""
    if layout.format != "parquet" or not isinstance(table, Path):
        return None
    with translated_os_errors(table):
        return sum(
            int(pq.read_metadata(file).num_rows)
            for batch in table.glob(f"{BATCH}=*")
            for file in batch.rglob("*.parquet")
        )


def outdated_batches(layout: FileLayout, table: LakePath) -> list[LakePath]:
    """Return the batches with a column stored in another form than the current layout requires."""
    forms = {column.name: stored_form(column, layout) for column in layout.columns}
    old_batches: list[LakePath] = []
    batches = batches_of(table)
    for batch, noted in zip(batches, layouts_of(batches), strict=True):
        written = noted or layout
        if any(stored_form(column, written) != forms.get(column.name) for column in written.columns):
            old_batches.append(batch)
    return old_batches


def rewrite_batches(
    layout: FileLayout, table: LakePath, old: Sequence[LakePath], into: LakePath, options: Mapping[str, Any]
) -> None:
    """Write the table again: the old batches in the current layout, the others unchanged.

    In a bucket only the old batches are written: the others stay where they are.
    """
    write_batches(read_some(layout, table, old), layout, into, options)
    if isinstance(table, Path) and isinstance(into, Path):
        _complete(layout, table, old, into)
        return
    for batch in old:
        write_layout(into / batch.name, layout)


def _complete(layout: FileLayout, table: Path, old: Sequence[LakePath], into: Path) -> None:
    with translated_os_errors(into):
        for batch in sorted(table.glob(f"{BATCH}=*")):
            copy = into / batch.name
            if batch not in old:
                shutil.copytree(batch, copy, copy_function=_link)
                continue
            copy.mkdir(exist_ok=True)  # Spark creates no folder for a batch without rows
            for note in batch.glob("_*"):
                if note.is_file():
                    shutil.copy2(note, copy)
            write_layout(copy, layout)


def read_some(
    layout: FileLayout,
    table: LakePath,
    batches: Sequence[LakePath],
    *,
    whole: bool = False,
    more: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return the rows of some batches in the table's columns, with the batch name and `more` columns of its files."""
    groups, more = _by_layout(layout, batches), more or {}
    frames = [
        in_column_types(
            read_batches(written, table, () if whole and len(groups) == 1 else members, *more.values()),
            layout.columns,
            BATCH,
            *more,
        )
        for written, members in groups
    ]
    united = frames[0]
    for frame in frames[1:]:
        united = united.unionByName(frame)
    return united


def layouts_of(batches: Sequence[LakePath]) -> list[FileLayout | None]:
    """Return the recorded layout of each of these batches, None where it has none."""
    remote = [batch for batch in batches if isinstance(batch, S3Path)]
    if not remote:
        return [read_layout(batch) for batch in batches]
    known = dict(_noted)  # a copy: another thread may clear the cache meanwhile
    unknown = [batch for batch in remote if batch not in known]
    known.update(zip(unknown, in_parallel(read_layout, unknown), strict=True))
    _noted.clear() if len(known) > _MOST_NOTED else _noted.update((batch, known[batch]) for batch in unknown)
    return [known[batch] for batch in remote]


def _by_layout(layout: FileLayout, batches: Sequence[LakePath]) -> list[tuple[FileLayout, list[LakePath]]]:
    groups: list[tuple[FileLayout, list[LakePath]]] = []
    for batch, noted in zip(batches, layouts_of(batches), strict=True):
        written = noted or layout
        for known, members in groups:
            if known.reads_like(written):
                members.append(batch)
                break
        else:
            groups.append((written, [batch]))
    return groups


def _link(source: str, destination: str) -> None:
    """Hard-link a published file, which never changes, into another folder; copy it where that fails."""
    try:
        os.link(source, destination)
    except OSError:  # not every file system has hard links
        shutil.copy2(source, destination)
