"""Commits Parquet files that tasks wrote to a Delta table by one log entry, without reading or writing a row again."""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from datetime import date
from pathlib import Path
from typing import Any

from ematix_flow.backends.delta.delta_rs import (
    is_addressable,
    is_plain,
    left_to_spark,
    open_table,
    parquet_footer,
    refuse_concurrent_commits,
)
from ematix_flow.contract.lane import Carried
from ematix_flow.dataplane.type_mapping import arrow_type
from ematix_flow.foundation import fault
from ematix_flow.foundation.lazy_imports import pa
from ematix_flow.storage.os_errors import translated_os_errors
from ematix_flow.storage.paths import LakePath, require_local
from ematix_flow.storage.s3_path import S3Path

_OWN = "part-flow-"
_STATISTICS = 32  # columns with statistics; Delta itself keeps as many


def can_add(table: LakePath, columns: Carried) -> bool:
    """Return whether the installed library supports the table's features, and the column types are the table's."""
    table_columns = _plain_columns(table)
    if table_columns is None:
        return False
    wanted = {name: _delta_type(kind) for name, kind in columns}
    same = all(name in table_columns and _type_text(table_columns[name].type) == kind for name, kind in wanted.items())
    return same and _are_nullable(table_columns, wanted)


def can_add_typed(table: LakePath, names: Collection[str]) -> bool:
    """Return whether files can be committed without Spark whose columns already have the table's own types."""
    table_columns = _plain_columns(table)
    return table_columns is not None and _are_nullable(table_columns, names)


def _are_nullable(existing: Mapping[str, Any], written: Collection[str]) -> bool:
    return all(field.nullable for name, field in existing.items() if name not in written)


def _plain_columns(table: LakePath) -> Mapping[str, Any] | None:
    """Return the columns of a table without partitions or special features; None where only Spark can write it."""
    if not is_addressable(table):
        return None
    with left_to_spark(table):
        delta_table = open_table(table)
        if is_plain(delta_table):
            return {field.name: field for field in delta_table.schema().fields}
    return None


def add_files(
    table: LakePath, files: Sequence[LakePath], *, how: str, token: tuple[str, int] | None, note: str | None, run_id: str,
    onto: Any = None,
) -> bool:  # fmt: skip
    """Move the files into the table and commit them with the token; return False when such a commit exists already.

    `token` is (writer, sequence), or None for a table that keeps no commit tokens. `onto` is a table version as the
    library opened it; where it is given, raise LeaseHeld when a later version exists.
    """
    from deltalake import CommitProperties, Transaction
    from deltalake.transaction import AddAction

    delta_table = open_table(table) if onto is None else onto
    known = None if token is None else delta_table.transaction_version(token[0])
    if token is not None and known is not None and known >= token[1]:
        return False
    actions: list[Any] = []
    with translated_os_errors(table):
        for number, file in enumerate(files):
            name = file_name(run_id, f"{number}-{uuid.uuid4().hex[:8]}")  # an earlier attempt may have left files
            size, modified = _move_into_table(file, table / name)
            statistics = json.dumps(_statistics(parquet_footer(table / name)))
            actions.append(AddAction(name, size, {}, int(modified * 1000), True, statistics))
    fault.point("before_log_entry")
    properties = CommitProperties(
        custom_metadata=None if note is None else {"userMetadata": note},
        app_transactions=None if token is None else [Transaction(token[0], token[1])],
        max_commit_retries=None if onto is None else 0,  # a retry would let both commits succeed
    )
    with nullcontext() if onto is None else refuse_concurrent_commits(table):
        delta_table.create_write_transaction(
            actions, how, delta_table.schema(), partition_by=[], commit_properties=properties
        )
    return True


def _move_into_table(file: LakePath, into: LakePath) -> tuple[int, float]:
    """Move a file into the table and return its bytes and mtime in seconds; in a bucket it is copied, not moved."""
    if isinstance(file, S3Path) and isinstance(into, S3Path):
        listed = next(iter(file.bucket.listed(file.key)))
        file.bucket.copy(listed, into.key)
        return listed.size, listed.modified.timestamp()
    require_local(file).rename(require_local(into))
    about = require_local(into).stat()
    return about.st_size, about.st_mtime


def file_name(run_id: str, number: str) -> str:
    """Return the name of a file in the table; it contains the run id, by which leftover files are found."""
    return f"{_OWN}{run_id}-{number}.parquet"


def run_of(name: str) -> str | None:
    """Return the id of the run that added a file, from its name; None for files that were written in another way.

    >>> run_of(file_name("0b6f", "0-1f2e3d4c"))
    '0b6f'
    >>> run_of("part-00000-c000.snappy.parquet")
    """
    return name.removeprefix(_OWN).rsplit("-", 2)[0] if name.startswith(_OWN) else None


def remove_files_of_run(table: Path, run_id: str) -> None:
    """Delete the files of a run that was never committed."""
    with translated_os_errors(table):
        for file in table.glob(file_name(run_id, "*")):
            file.unlink(missing_ok=True)


def _delta_type(kind: Any) -> str:
    from deltalake import Schema

    return _type_text(Schema.from_arrow(pa.schema([pa.field("c", arrow_type(kind))])).fields[0].type)


def _type_text(kind: Any) -> str:
    return str(kind.to_json()) if hasattr(kind, "to_json") else str(kind)


def _statistics(about: Any) -> Mapping[str, Any]:
    """Return row and NULL counts, and the bounds of integer and date columns, from a Parquet file's footer."""
    nulls: dict[str, int] = {}
    lowest: dict[str, Any] = {}
    highest: dict[str, Any] = {}
    for place in range(min(about.num_columns, _STATISTICS)):
        groups = [about.row_group(number).column(place) for number in range(about.num_row_groups)]
        statistics = [group.statistics for group in groups]
        if not statistics or any(item is None or not item.has_null_count for item in statistics):
            continue
        name = groups[0].path_in_schema
        nulls[name] = sum(item.null_count for item in statistics)
        bounds = [(item.min, item.max) for item in statistics if item.has_min_max]
        values = [value for pair in bounds for value in pair]
        if values and len(bounds) == len(statistics) and all(type(value) in (int, date) for value in values):
            lowest[name], highest[name] = _plain_value(min(values)), _plain_value(max(values))
    return {"numRecords": about.num_rows, "minValues": lowest, "maxValues": highest, "nullCount": nulls}


def _plain_value(value: Any) -> Any:
    return value.isoformat() if isinstance(value, date) else value
