"""Parquet files as parts of the Arrow lane: row groups distributed over tasks, read without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ematix_flow.contract.lane import ArrowParts, Carried
from ematix_flow.dataplane.type_mapping import arrow_type
from ematix_flow.foundation.errors import FlowError, RunFailed
from ematix_flow.foundation.lazy_imports import pa, pq

ROWS_PER_TASK = 100_000  # reading fewer rows costs less than a second task
_BATCH_ROWS = 65_536

Group = tuple[str, int, int]
"""A file, one of its row groups, and the number of rows in it."""


@dataclass(frozen=True)
class ParquetFiles:
    """Row groups of files with one schema, from their footers."""

    groups: tuple[Group, ...]
    schema: Any

    @property
    def rows(self) -> int:
        """Return the number of rows of all files."""
        return sum(rows for _, _, rows in self.groups)


def parquet_files(files: Sequence[Path]) -> ParquetFiles | str:
    """Read the footers; return the files, or the reason (a text) why they cannot be read together."""
    groups: list[Group] = []
    schema: Any = None
    for file in files:
        opened = pq.ParquetFile(file)
        file_schema = opened.schema_arrow.remove_metadata()
        if schema is not None and not file_schema.equals(schema):
            return "its files have different columns"
        schema = file_schema
        about = opened.metadata
        groups += [(str(file), number, about.row_group(number).num_rows) for number in range(about.num_row_groups)]
    return ParquetFiles(tuple(groups), schema) if schema is not None else "there is no file yet"


def parquet_parts(files: ParquetFiles, names: Sequence[str], carried: Carried, *, parallelism: int) -> ArrowParts:
    """Return parts that read these columns of the files, under the names and types of `carried`."""
    dealt = _distribute(files, max(1, min(parallelism, files.rows // ROWS_PER_TASK)))

    def read(number: int) -> Iterator[Any]:
        schema = pa.schema([pa.field(name, arrow_type(kind)) for name, kind in carried])
        for file, groups in dealt[number]:
            opened = pq.ParquetFile(file)
            for batch in opened.iter_batches(_BATCH_ROWS, row_groups=groups, columns=list(dict.fromkeys(names))):
                yield pa.RecordBatch.from_arrays(
                    [_cast(batch.column(name), field) for name, field in zip(names, schema, strict=True)],
                    schema=schema,
                )

    return ArrowParts(len(dealt), carried, read, translate)


def type_obstacle(files: ParquetFiles, names: Sequence[str], carried: Carried) -> str | None:
    """Return why Spark and Arrow may read a column differently (first such column), None if all are read alike."""
    for name, (_, kind) in zip(names, carried, strict=True):
        place = files.schema.get_field_index(name)
        if place < 0:
            return f"{name} is not in its files"
        if not _is_read_identically(files.schema.field(place).type, arrow_type(kind)):
            return f"Spark reads {name}, stored as {files.schema.field(place).type}"
    return None


def translate(exc: Exception) -> FlowError:
    """Return the error for a file that cannot be read."""
    return RunFailed(f"a Parquet file cannot be read: {exc}", hint="check the file, or run again if it was replaced")


def _is_read_identically(stored: Any, wanted: Any) -> bool:
    if stored == wanted:
        return True
    if pa.types.is_timestamp(stored) and pa.types.is_timestamp(wanted):  # Spark truncates ns in its own way
        return stored.unit in ("us", "ms") and (stored.tz is None) == (wanted.tz is None)
    if pa.types.is_dictionary(stored):
        return _is_read_identically(stored.value_type, wanted)
    large = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}
    return bool(large.get(stored) == wanted)


def _cast(column: Any, field: Any) -> Any:
    return column if column.type == field.type else column.cast(field.type)


def _distribute(files: ParquetFiles, count: int) -> list[list[tuple[str, list[int]]]]:
    """Distribute row groups in order, with about the same number of rows per part."""
    parts: list[list[tuple[str, list[int]]]] = [[] for _ in range(count)]
    seen, share = 0, max(1, files.rows) / count
    for file, group, rows in files.groups:
        part = parts[min(count - 1, int((seen + rows / 2) / share))]
        if part and part[-1][0] == file:
            part[-1][1].append(group)
        else:
            part.append((file, [group]))
        seen += rows
    return [part for part in parts if part] or [[]]
