"""A table as the batches it consists of: each says how it was written, and all are read as the table is declared."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ematix_flow.backends.files.codec import conformed, read_batches, stored_form, write_batches
from ematix_flow.backends.files.layout import BATCH, Layout, note_layout, noted_layout
from ematix_flow.families.frames import pairs, spark_schema
from ematix_flow.families.lake.place import explained
from ematix_flow.families.lake.session import active

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def batches_of(table: Path) -> list[Path]:
    """The published batches of a table."""
    return sorted(table.glob(f"{BATCH}=*"))


def batch_folder(table: Path, run_id: str) -> Path:
    """Where the rows of one published run are."""
    return table / f"{BATCH}={run_id}"


def read_table(layout: Layout, table: Path) -> DataFrame:
    """Every published row of a table; none when there is no batch yet."""
    batches = batches_of(table)
    if not batches:
        return active().createDataFrame([], spark_schema(pairs(layout.columns)))
    return _read(layout, table, batches, whole=True).drop(BATCH)


def rows_in_footers(layout: Layout, table: Path) -> int | None:
    """How many rows a table has, where its files say so themselves."""
    if layout.format != "parquet":
        return None
    import pyarrow.parquet as pq

    with explained(table):
        return sum(
            int(pq.read_metadata(file).num_rows) for batch in batches_of(table) for file in batch.rglob("*.parquet")
        )


def outdated(layout: Layout, table: Path) -> list[Path]:
    """Batches with a column in another form than the layout has it now."""
    forms = {column.name: stored_form(column, layout) for column in layout.columns}
    found: list[Path] = []
    for batch in batches_of(table):
        written = noted_layout(batch) or layout
        if any(stored_form(column, written) != forms.get(column.name) for column in written.columns):
            found.append(batch)
    return found


def renew(layout: Layout, table: Path, old: Sequence[Path], into: Path, options: Mapping[str, Any]) -> None:
    """The table once more: the old batches written as the layout is now, the others as they are."""
    write_batches(_read(layout, table, old), layout, into, options)
    with explained(into):
        for batch in batches_of(table):
            copy = into / batch.name
            if batch not in old:
                shutil.copytree(batch, copy, copy_function=_link)
                continue
            copy.mkdir(exist_ok=True)  # a batch without rows gets no folder from Spark
            for note in batch.glob("_*"):
                if note.is_file():
                    shutil.copy2(note, copy)
            note_layout(copy, layout)


def _read(layout: Layout, table: Path, batches: Sequence[Path], *, whole: bool = False) -> DataFrame:
    groups = _by_layout(layout, batches)
    frames = [
        conformed(read_batches(written, table, () if whole and len(groups) == 1 else members), layout.columns, BATCH)
        for written, members in groups
    ]
    united = frames[0]
    for frame in frames[1:]:
        united = united.unionByName(frame)
    return united


def _by_layout(layout: Layout, batches: Sequence[Path]) -> list[tuple[Layout, list[Path]]]:
    groups: list[tuple[Layout, list[Path]]] = []
    for batch in batches:
        written = noted_layout(batch) or layout
        for known, members in groups:
            if known.reads_like(written):
                members.append(batch)
                break
        else:
            groups.append((written, [batch]))
    return groups


def _link(source: str, destination: str) -> None:
    """Published files never change, so both folders may share them."""
    try:
        os.link(source, destination)
    except OSError:  # not every file system has links
        shutil.copy2(source, destination)
