"""A Delta table as a stream source: its current rows, then every new commit; or the change feed of the commits."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from ematix_flow.backends.delta.row_origins import VersionRange, change_rows_with_commits, with_commits, with_file_names
from ematix_flow.backends.delta.source import DeltaSource
from ematix_flow.backends.delta.table import DeltaTable
from ematix_flow.contract.stream import LostRows, Offsets, PartitionLag, StreamRead, StreamSource
from ematix_flow.dataplane.spark_session import is_active_session_sail
from ematix_flow.declare.connections import DeltaLocalConnection, DeltaS3Connection
from ematix_flow.families.lake.errors import translated_errors
from ematix_flow.foundation.errors import ConfigError, PlanError, RunFailed, Unsupported

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


CHANGES = "changes:"
"""Prefix of a query that reads the change feed of a table: `changes:analytics.orders`."""
_FEED = "delta.enableChangeDataFeed"
_MOST_COMMITS = 100  # that are read to compute a lag or the size of a file
_LOSS = (
    "DELTA_MISSING_FILES_UNEXPECTED_VERSION", "DELTA_LOG_FILE_NOT_FOUND_FOR_STREAMING_SOURCE", "DELTA_CHANGE_DATA_FILE_NOT_FOUND",
)  # fmt: skip
_UNREAD = re.compile(
    r"FAILED_READ_FILE\.FILE_NOT_EXIST\] Encountered error while reading file (.+?)\. File does not exist"
    r"|DELTA_FILE_NOT_FOUND_DETAILED\] File (.+?) referenced in the transaction log cannot be found"
)
"""Errors of Spark and Delta about a file that was removed, as by VACUUM; it may belong to another table."""


class DeltaStream(StreamSource):
    """A stream of rows; a change feed adds `_change_type`, `_commit_version` and `_commit_timestamp`."""

    envelopes = False

    def __init__(self, connection: DeltaLocalConnection | DeltaS3Connection) -> None:
        self._source = DeltaSource(connection)
        self._started: StreamRead | None = None
        self._gone: str | None = None

    def check(self, read: StreamRead) -> None:
        """Raise where the table does not exist or the start is invalid."""
        _beginning(read.start)
        self._table(read)

    def frame(self, spark: SparkSession, read: StreamRead) -> DataFrame:
        """Return the stream of new commits, from the checkpoint's offset, else from `start`."""
        if is_active_session_sail():
            raise Unsupported('engine="sail" has no streams of Delta tables', hint='use engine="local"')
        options, table = _beginning(read.start), self._table(read)
        if _reads_change_feed(read):
            _require_feed(table, _name(read))
            options["readChangeFeed"] = "true"
        if read.max_rows is not None:
            options["maxFilesPerTrigger"] = str(_files_of(table, read.max_rows))
        # Delta itself skips a commit that only moved rows into other files; other changes stop the stream.
        self._started = read
        frame = spark.readStream.format("delta").options(**options).load(table.location)
        return frame if _reads_change_feed(read) else with_file_names(frame)

    def rows(self, frame: DataFrame) -> DataFrame:
        """Return the rows of a micro-batch, with the commits that added them."""
        read = self._started
        if read is None:
            raise RunFailed("the stream was not started")
        if _reads_change_feed(read):
            return change_rows_with_commits(frame, _name(read))
        return with_commits(frame, self._table(read), _name(read), VersionRange.planned(read))

    def lag(self, read: StreamRead, end: Offsets) -> Sequence[PartitionLag]:
        """Return the rows of the commits that were not read yet, and the age in seconds of the oldest one."""
        version = end.get("reservoirVersion", end.get("version"))  # the latter is a start offset
        if version is None or version == "latest":
            return ()
        commits = list(_commits(self._table(read), int(version)))
        rows = sum(count for _, _, count in commits) if len(commits) < _MOST_COMMITS else None
        waiting = datetime.now(timezone.utc).timestamp() - commits[0][1] / 1000 if commits else 0.0
        return (PartitionLag(_name(read), rows, max(0.0, waiting)),)

    def lost(self, read: StreamRead, end: Offsets) -> Sequence[LostRows]:
        """Return unread commits that the table's log no longer has, or whose files the table no longer has."""
        table, version = self._table(read), end.get("reservoirVersion")
        kept = table.first_version()
        if version is not None and kept is not None and kept > int(version):
            return (LostRows(_name(read), str(version), str(kept), None),)
        is_begun = version is not None and not end.get("isStartingVersion")  # before, it reads the first snapshot
        removed = _removed_commits(table, int(version)) if version is not None and is_begun else None
        if removed is not None:
            at, rows, following = removed
            return (LostRows(_name(read), str(at), "" if following is None else str(following), rows),)
        return (LostRows(_name(read), self._gone, "", None),) if self._gone else ()

    def is_loss_error(self, exc: BaseException) -> bool:
        """Return whether a query failed because commits or files of the table that it had to read are gone."""
        message = str(exc)
        self._gone = self._missing_file(message)
        return self._gone is not None or any(word in message for word in _LOSS)

    def _missing_file(self, message: str) -> str | None:
        """Return the file of this table that the error reports as missing."""
        if self._started is None:
            return None
        below = _normalized_address(self._table(self._started).location) + "/"
        files = (_normalized_address(one or other) for one, other in _UNREAD.findall(message))
        return next((file.removeprefix(below) for file in files if file.startswith(below)), None)

    def offsets_at(self, read: StreamRead, moment: datetime) -> Offsets:
        """Return the offset of the first commit at or after a moment, `latest` where there is none."""
        wanted = moment.timestamp() * 1000
        first: Any = "latest"
        for version, at, _ in _newest_first(self._table(read)):
            if at < wanted:
                break
            first = version
        return {"version": first}

    def _table(self, read: StreamRead) -> DeltaTable:
        return DeltaTable(self._source.locate(tuple(_name(read).replace("/", ".").split("."))))


def _reads_change_feed(read: StreamRead) -> bool:
    return read.query.startswith(CHANGES)


def _name(read: StreamRead) -> str:
    return read.query.removeprefix(CHANGES).strip().strip("/")


def _beginning(start: str) -> dict[str, str]:
    """Return the Delta options for where a stream without a checkpoint begins."""
    if start == "earliest":
        return {}  # the current rows of the table, then new commits
    if start == "latest":
        return {"startingVersion": "latest"}
    try:
        data: Mapping[str, Any] = json.loads(start)
        name, value = next((name, data[name]) for name in ("version", "timestamp") if name in data)
    except (ValueError, TypeError, StopIteration):
        raise ConfigError(
            f"a stream of a Delta table cannot start at {start!r}",
            hint='say earliest, latest, {"version": 12} or {"timestamp": "2026-01-01 00:00:00"}',
        ) from None
    return {"startingVersion" if name == "version" else "startingTimestamp": str(value)}


def _require_feed(table: DeltaTable, name: str) -> None:
    """Raise PlanError unless the table's change feed is enabled."""
    with translated_errors(f"looking at {name}"):
        kept = table.properties().get(_FEED, "false").lower() == "true"
    if not kept:
        raise PlanError(
            f"{name} keeps no change feed",
            hint=f"ALTER TABLE {table.relation} SET TBLPROPERTIES ('{_FEED}' = 'true'), or leave {CHANGES!r} out",
        )


def _commits(table: DeltaTable, first: int) -> Iterator[tuple[int, float, int]]:
    """Yield versions from `first` on, oldest first, with their time (ms) and row count; 100 versions at most."""
    versions = sorted(table.versions(first))[:_MOST_COMMITS]
    for version in versions:
        yield _commit(table, version)


def _removed_commits(table: DeltaTable, first: int) -> tuple[int, int | None, int | None] | None:
    """Return the first commit with a missing file, the rows of all missing files, and the first commit after them."""
    at, rows, following = None, 0, None
    for version in sorted(table.versions(first))[:_MOST_COMMITS]:
        adds = [action["add"] for action in table.actions_of(version) if action.get("add", {}).get("dataChange")]
        gone = [add for add in adds if not table.path.joinpath(*unquote(str(add["path"])).split("/")).exists()]
        if gone:
            at, following = version if at is None else at, None
            rows += sum(int(json.loads(add.get("stats") or "{}").get("numRecords") or 0) for add in gone)
        elif at is not None and following is None:
            following = version
    return None if at is None else (at, rows or None, following)


def _normalized_address(address: str) -> str:
    """Return an address in a form that can be compared: `file:/a%20b` and `file:///a b` become equal."""
    return re.sub(r"^file:/*", "file:/", unquote(address))


def _newest_first(table: DeltaTable) -> Iterator[tuple[int, float, int]]:
    """Yield every version that the log has, without a limit: the caller stops at the moment that it wants."""
    for version in sorted(table.versions(0), reverse=True):
        yield _commit(table, version)


def _commit(table: DeltaTable, version: int) -> tuple[int, float, int]:
    """Return a version with its time (ms) and row count; without a time in the commit, that of its file, as in Delta."""
    at, rows = _commit_facts(table.actions_of(version))
    return version, at or table.written_at(version), rows


def _files_of(table: DeltaTable, rows: int) -> int:
    """Return how many files contain so many rows, by the average of the newest commits; at least 1."""
    counts: list[int] = []
    for version in sorted(table.versions(0), reverse=True)[:_MOST_COMMITS]:
        adds = [action["add"] for action in table.actions_of(version) if action.get("add", {}).get("dataChange")]
        counts += [int(json.loads(add.get("stats") or "{}").get("numRecords") or 0) for add in adds]
    return max(1, rows * len(counts) // max(1, sum(counts))) if sum(counts) else 1


def _commit_facts(actions: Sequence[Mapping[str, Any]]) -> tuple[float, int]:
    at, rows = 0.0, 0
    for action in actions:
        if "commitInfo" in action:
            at = float(action["commitInfo"].get("timestamp") or 0)
        elif action.get("add", {}).get("dataChange"):
            rows += int(json.loads(action["add"].get("stats") or "{}").get("numRecords") or 0)
    return at, rows
