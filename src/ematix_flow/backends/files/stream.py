"""A folder of files as a stream source: new files, or new batches of a table that ematix-flow wrote.

Spark streams only the file names (`arrivals`); each micro-batch then reads its files like any other query.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ematix_flow.backends.files.external_files import check_options
from ematix_flow.backends.files.folder_listing import SETTLE_SECONDS, WatchedFolder
from ematix_flow.backends.files.layout import BATCH, FileLayout, FileLayouts
from ematix_flow.backends.files.learned_columns import LearnedColumns
from ematix_flow.backends.files.new_file_rows import NewFiles, in_folders, no_rows
from ematix_flow.backends.files.published_batches import batches_of, read_some
from ematix_flow.backends.files.replayed_lines import ReplayedLines
from ematix_flow.backends.files.row_origins import source_of
from ematix_flow.contract.stream import ENVELOPE, Offsets, PartitionLag, StreamRead, StreamSource
from ematix_flow.dataplane.spark_session import active_session, exact_settings
from ematix_flow.dataplane.type_mapping import pairs, spark_schema
from ematix_flow.declare.connections import ObjectStoreLocalConnection, ObjectStoreS3Connection
from ematix_flow.families.lake.errors import translated_errors
from ematix_flow.foundation.errors import ConfigError, MissingTable, PlanError, RunFailed
from ematix_flow.messages.decode import SOURCE
from ematix_flow.storage.addresses import path_of_address
from ematix_flow.storage.paths import LakePath, LakeRoot
from ematix_flow.storage.s3_path import S3Path
from ematix_flow.storage.spark_checkpoint import last_planned

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


_ARRIVALS = "arrivals"
_SCHEMA = "files_schema.json"
_ENVELOPE = ", ".join(f"`{name}` {kind}" for name, kind in ENVELOPE)


@dataclass(frozen=True)
class _StreamFiles:
    """The files of one stream: their path, layout, known columns and options."""

    path: LakePath
    layout: FileLayout | None
    known: LearnedColumns
    options: Mapping[str, Any]

    @property
    def below(self) -> LakePath:
        """Return the folder that file names are relative to; the source may be a single file."""
        return self.path.parent if isinstance(self.path, Path) and self.path.is_file() else self.path


class FilesStream(StreamSource):
    """A stream of rows; JSON lines are a stream of messages, unless ematix-flow wrote the table."""

    envelopes = False

    def __init__(self, connection: ObjectStoreLocalConnection | ObjectStoreS3Connection) -> None:
        resolved = connection.resolved()
        self._name, self._format = connection.name, resolved.format
        self._place = LakeRoot.of(resolved)
        self._layouts = FileLayouts(self._place)
        self._reading: _StreamFiles | None = None
        self._folders: StructType | None = None
        self._run = uuid.uuid4().hex

    def check(self, read: StreamRead) -> None:
        """Raise where the folder does not exist or an option is invalid; a prefix of a bucket may be empty."""
        _check_options(self._format, read)
        _since(read.start)
        path, _ = self._where(read)
        if isinstance(path, S3Path):
            path.bucket.first(path.prefix)
        elif not path.exists():
            raise MissingTable(
                f"{path} is not there, and {read.stream} watches it for files of {self._format}",
                hint="make that folder first, or correct the source's query",
            )

    def frame(self, spark: SparkSession, read: StreamRead) -> DataFrame:
        """Return a stream of the names of new files; `rows` reads their contents."""
        from ematix_flow.backends.files.new_file_source import NewFileSettings, data_source

        self._place.register(spark)
        path, layout = self._where(read)
        home, planned = path_of_address(read.checkpoint), last_planned(read.checkpoint, read.number)
        known = LearnedColumns(home / read.state_name(_SCHEMA), read.options.get("fields"))
        self._reading = _StreamFiles(path, layout, known, read.options)
        watched = NewFileSettings(
            folder=self._folder(read),
            ledger=home / read.state_name(_ARRIVALS),
            is_new=planned is None,
            since=_since(read.start),
            max_rows=read.max_rows,
            drains=bool(read.options.get("drain")),
            run=self._run,
            planned=int((planned or {}).get("batch", 0)),
        )
        label = f"flow_arrivals_{uuid.uuid4().hex}"
        spark.dataSource.register(data_source(label, watched))
        return spark.readStream.format(label).load()

    def has_more(self, read: StreamRead) -> bool:
        """Return whether a drain, limited to `max_rows` per query, has found more files than it has read so far."""
        from ematix_flow.backends.files.new_file_source import DrainGoal, FileOffsetLog

        if read.max_rows is None:
            return False
        ledger = FileOffsetLog(path_of_address(read.checkpoint) / read.state_name(_ARRIVALS))
        ledger.load()
        return bool(DrainGoal(ledger.folder, self._run).left(ledger.seen))

    @property
    def are_messages(self) -> bool:
        """Return whether the files must be read by `messages` instead of `rows`; valid once `frame` was called."""
        return self._format == "json_lines" and self._reading is not None and self._reading.layout is None

    def messages(self, frame: DataFrame) -> DataFrame:
        """Return the lines of the files in a micro-batch, as envelopes."""
        files = self._new(frame)
        with self._reading_of(files):
            folders = files.folders_of(replace(self._opened.known, fields=None)) if files.names else None
            self._folders = folders or self._folders
            return files.lines() if files.names else active_session().createDataFrame([], _ENVELOPE)

    def with_folder_columns(self, rows: DataFrame) -> DataFrame:
        """Return the decoded messages with the partition columns."""
        return in_folders(rows, self._folders) if self._folders is not None else rows

    def sample_lines(self) -> int | None:
        """Return the number of lines that a new stream samples for its schema, None where it is not limited."""
        limit: int | None = _read_options(self._opened).get("schema_infer_max_records")
        return limit

    def rows(self, frame: DataFrame) -> DataFrame:
        """Return the rows of the files in a micro-batch."""
        files, reading = self._new(frame), self._opened
        with self._reading_of(files):
            if reading.layout is not None:
                return self._batches(reading, reading.layout, files.names)
            if not files.names:
                return no_rows(reading.known)
            return files.csv(reading.known) if self._format == "csv" else files.stored(reading.known)

    @property
    def keeps_lines(self) -> bool:
        """Return whether a row that cannot be read is stored as its line, which `returned` can read."""
        return self._format == "csv" and self._opened.layout is None

    def rows_of_lines(self, messages: DataFrame) -> DataFrame:
        """Return the rows of stored lines, given as messages."""
        files = NewFiles(self._format, self._opened.below, (), _read_options(self._opened))
        with translated_errors("reading lines again"), exact_settings(active_session()):
            return ReplayedLines(files, self._opened.known).rows(messages)

    @property
    def _opened(self) -> _StreamFiles:
        if self._reading is None:
            raise RunFailed("the stream was not started")
        return self._reading

    def _new(self, frame: DataFrame) -> NewFiles:
        names = [row["name"] for row in frame.collect()]
        return NewFiles(self._format, self._opened.below, names, _read_options(self._opened))

    @contextmanager
    def _reading_of(self, files: NewFiles) -> Iterator[None]:
        """Raise PlanError for files that were deleted after they were listed: no retry can succeed."""
        try:
            with translated_errors("reading new files"), exact_settings(active_session()):
                yield
        except MissingTable as exc:
            gone = [name for name in files.names if not files.below.joinpath(*name.split("/")).exists()]
            raise (_missing_files_error(self._opened.path, gone) if gone else exc) from exc

    def _batches(self, reading: _StreamFiles, layout: FileLayout, runs: Sequence[str]) -> DataFrame:
        """Return the rows of own batches in their declared types, with columns added since the stream began."""
        layout = self._layouts.read(self._names(reading.path)) or layout
        if not runs:
            return active_session().createDataFrame([], spark_schema(pairs(layout.columns)))
        published = {
            batch.name.removeprefix(f"{BATCH}=").partition("~")[0]: batch for batch in batches_of(reading.path)
        }
        gone = [run_id for run_id in runs if run_id not in published]
        if gone:
            raise _missing_files_error(reading.path, gone)
        chosen = [published[run_id] for run_id in runs]
        return read_some(layout, reading.path, chosen, more={SOURCE: source_of(layout.format)}).drop(BATCH)

    def lag(self, read: StreamRead, end: Offsets) -> Sequence[PartitionLag]:
        """Return the age in seconds of the oldest unread file; its rows are unknown (None) without reading it."""
        from ematix_flow.backends.files.new_file_source import FileOffsetLog

        ledger = FileOffsetLog(path_of_address(read.checkpoint) / read.state_name(_ARRIVALS))
        ledger.load()
        since = _since(json.dumps(dict(end))) if "since" in end else None  # a start offset
        present = self._folder(read).present()
        waiting = [
            item.modified
            for item in present
            if (item.name not in ledger.seen if since is None else item.modified >= since)
        ]
        oldest = min(waiting, default=0.0)
        age = max(0.0, time.time() - oldest) if oldest else 0.0  # a batch in a bucket has no time of its own
        return (PartitionLag(read.query or self._name, None if waiting else 0, age),)

    def offsets_at(self, read: StreamRead, moment: datetime) -> Offsets:
        """Return the start of all files at or after a moment."""
        return {"since": moment.isoformat()}

    def _folder(self, read: StreamRead) -> WatchedFolder:
        path, layout = self._where(read)
        settle = float(read.options.get("settle_seconds", SETTLE_SECONDS))
        return WatchedFolder(path, self._format, layout is not None, settle)

    def _where(self, read: StreamRead) -> tuple[LakePath, FileLayout | None]:
        """Return the path of a query (`raw/events/` a prefix, `raw.events` a table), and the layout of an own table."""
        query = read.query.strip().strip("/")
        parts = [part for part in query.split("/") if part]
        if any(part in (".", "..") for part in parts):
            raise ConfigError(
                f"{read.query!r} leads out of connection {self._name!r}", hint="name a folder below its path"
            )
        if len(parts) == 1 and "." in query and self._layouts.read(query.split(".")) is not None:
            parts = query.split(".")
        path = self._place.root.joinpath(*parts)
        if len(parts) == 1 and "." in query and not path.exists():
            dotted = self._place.root.joinpath(*query.split("."))
            path = dotted if dotted.exists() else path
        names = self._names(path)
        return path, self._layouts.read(names) if names else None

    def _names(self, path: LakePath) -> tuple[str, ...]:
        return self._place.names_of(path)


def _since(start: str) -> float | None:
    """Return the time in epoch seconds before which files count as read, None for earliest."""
    if start == "earliest":
        return None
    if start == "latest":
        return time.time()
    try:
        data: Any = json.loads(start)
        return datetime.fromisoformat(str(data["since"]).replace("Z", "+00:00")).timestamp()
    except (ValueError, TypeError, KeyError):
        raise ConfigError(
            f"a stream of files cannot start at {start!r}",
            hint='say earliest, latest or {"since": "2026-01-01T00:00:00+00:00"}',
        ) from None


def _missing_files_error(path: LakePath, names: Sequence[str]) -> PlanError:
    return PlanError(
        f"{len(names)} file(s) or batch(es) of {path} are gone that the stream has not read, the first is {names[0]}",
        hint="bring them back, or go on without them, knowingly: flow stream rewind NAME --to latest",
    )


def _check_options(file_format: str, read: StreamRead) -> None:
    check_options(file_format, _read_options(read))


def _read_options(read: StreamRead | _StreamFiles) -> Mapping[str, Any]:
    options: Mapping[str, Any] = read.options.get("read_options") or {}
    return options
