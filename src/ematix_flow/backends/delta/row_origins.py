"""The commit that added each row of a Delta stream, in the `_source` form that broker messages have.

Delta streams rows without their commits, but tasks can read the file name, and the log has the commit of each file.
Files of the table's first snapshot are ordered by the time they were written.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ematix_flow.backends.delta.table import DeltaTable
from ematix_flow.contract.stream import StreamRead
from ematix_flow.dataplane.spark_session import active_session
from ematix_flow.messages.decode import source_struct
from ematix_flow.sql.spark_text import quote, text_literal
from ematix_flow.storage.addresses import path_of_address

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FILE, _BLOCK, _NAME, _VERSION, _AT = "_flow_file", "_flow_block", "_flow_name", "_flow_version", "_flow_at"
_MARKS = (f"input_file_name() AS {_FILE}", f"input_file_block_start() AS {_BLOCK}")
# A task reads blocks of at least 1 MiB one after the other, and counts its rows in 33 bits.
_PLACE = f"shiftleft({_BLOCK} DIV 1048576, 33) + (monotonically_increasing_id() & 8589934591)"
_LAST_PART = "substring_index({}, '/', -1)"
_MOST_COMMITS = 1_000
"""Most commits of one micro-batch that are looked up, the newest; rows of earlier ones get no offset."""


@dataclass(frozen=True)
class VersionRange:
    """The range of table versions in a micro-batch, as recorded in its checkpoint."""

    first: int = 0
    last: int = -1
    has_beginning: bool = True
    """Whether rows of the table's first snapshot may be among them."""

    @classmethod
    def planned(cls, read: StreamRead) -> VersionRange:
        """Return the versions of the micro-batch that was planned last."""
        folder = path_of_address(read.checkpoint) / "spark" / "offsets"
        numbers = sorted(int(item.name) for item in folder.iterdir() if item.name.isdigit()) if folder.is_dir() else []
        if not numbers:
            return cls()
        lines = [(folder / str(one)).read_text(encoding="utf-8").splitlines()[read.number + 2] for one in numbers[-2:]]
        ends = [json.loads(line) if line != "-" else {} for line in lines]  # one of several sources may have none yet
        before: dict[str, Any] = ends[0] if len(ends) > 1 else {}
        return cls(
            int(before.get("reservoirVersion", 0)),
            int(ends[-1].get("reservoirVersion", -1)),
            not before or bool(before.get("isStartingVersion")),
        )


def with_file_names(frame: DataFrame) -> DataFrame:
    """Return the stream with the file name and block start of each row, which are available only while it is read."""
    return frame.selectExpr("*", *_MARKS)


def with_commits(rows: DataFrame, table: DeltaTable, name: str, span: VersionRange) -> DataFrame:
    """Add `_source` to rows with file names: the commit is the offset, file and position in it are the message id."""
    kept = [column for column in rows.columns if column not in (_FILE, _BLOCK)]
    file = _LAST_PART.format(_FILE)
    placed = rows.selectExpr("*", f"{file} AS {_NAME}", f"concat({file}, ':', lpad({_PLACE}, 20, '0')) AS _flow_id")
    placed = placed.join(_files_of_commits(table, span).hint("broadcast"), _NAME, "left")
    at = f"{_AT}_commit"
    if span.has_beginning:
        placed, at = placed.join(_initial_file_times(table), _NAME, "left"), f"coalesce({at}, {_AT}_file)"
    return placed.selectExpr(*map(quote, kept), _source(name, _VERSION, "_flow_id", f"timestamp_millis({at})"))


def change_rows_with_commits(rows: DataFrame, name: str) -> DataFrame:
    """Add `_source` to the rows of a change feed; the message id orders the row image before ahead of the one after."""
    is_old = "_change_type IN ('delete', 'update_preimage')"
    what = f"CASE WHEN {is_old} THEN NULL ELSE _change_type END"
    return rows.selectExpr("*", _source(name, "_commit_version", what, "_commit_timestamp"))


def _files_of_commits(table: DeltaTable, span: VersionRange) -> DataFrame:
    """Return files added by the commits of a micro-batch; times increase with the version despite clock errors."""
    files: dict[str, tuple[str, int, int]] = {}
    at = 0
    wanted = [version for version in sorted(table.versions(span.first)) if version <= span.last]
    for version in wanted[-_MOST_COMMITS:]:
        actions = table.actions_of(version)
        timestamp = next((one["commitInfo"].get("timestamp") for one in actions if "commitInfo" in one), None)
        at = max(at + 1, int(timestamp or 0))
        for action in actions:
            if action.get("add", {}).get("dataChange"):
                file = str(action["add"]["path"]).rpartition("/")[2]
                files[file] = (file, version, at)
    columns = f"{_NAME} STRING, {_VERSION} BIGINT, {_AT}_commit BIGINT"
    return active_session().createDataFrame(list(files.values()), columns)


def _initial_file_times(table: DeltaTable) -> DataFrame:
    """Return the modification time of every file of the table, one row per file name."""
    from pyspark.sql import DataFrame

    spark: Any = active_session()
    log = spark._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, table.location)
    files = DataFrame(log.unsafeVolatileSnapshot().allFiles().toDF(), spark)
    named = files.selectExpr(f"{_LAST_PART.format('path')} AS {_NAME}", f"modificationTime AS {_AT}_file")
    return named.groupBy(_NAME).agg({f"{_AT}_file": "max"}).toDF(_NAME, f"{_AT}_file")


def _source(name: str, version: str, message_id: str, at: str) -> str:
    return source_struct(topic=text_literal(name), offset=version, message_id=message_id, timestamp=at)
