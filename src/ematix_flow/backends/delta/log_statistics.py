"""Statistics of files from a Delta log: row counts, and the range and NULL count of each column."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ematix_flow.backends.delta.snapshot import DeltaSnapshot
from ematix_flow.sql.joins.file_statistics import LoggedStatistics, TableFiles, ValueRange, merged
from ematix_flow.sql.joins.table_statistics import plain_value

_MILLISECOND_NS = 1_000_000


def files_in_log(snapshot: DeltaSnapshot) -> TableFiles | None:
    """Return the files of a table version with the log's statistics; None where some are outside its folder."""
    adds = snapshot.adds
    if any(path.startswith("/") or ":" in path for path in snapshot.paths):
        return None
    files = tuple(snapshot.folder / path for path in snapshot.paths)
    known = zip(*(adds.column(name).to_pylist() for name in ("path", "modification_time", "size_bytes")), strict=True)
    stamp = frozenset((str(snapshot.folder / path), moment * _MILLISECOND_NS, size) for path, moment, size in known)
    names = tuple(str(column["name"]) for column in json.loads(snapshot.columns)["fields"])
    rows = snapshot.rows
    return TableFiles(
        stamp, files, names, None if rows is None else LoggedStatistics(rows, lambda name: _range(adds, name))
    )


def _range(adds: Any, name: str) -> ValueRange:
    counts = adds.column("num_records").to_pylist() if "num_records" in adds.column_names else []
    lows, highs, nulls = (_of_column(adds, what, name) for what in ("min", "max", "null_count"))
    return merged([
        ValueRange(plain_value(low), plain_value(high), missing, is_empty=missing is not None and missing == count)
        for low, high, missing, count in zip(lows, highs, nulls, counts, strict=True)
    ])  # fmt: skip


def _of_column(adds: Any, what: str, name: str) -> Sequence[Any]:
    """Return one statistic of one column from the log, file by file; None where it is missing."""
    if what not in adds.column_names:
        return [None] * adds.num_rows
    values = adds.column(what).to_pylist()
    return [item.get(name) if isinstance(item, dict) else None for item in values]
