"""The spool as a streaming data source of Spark, with segments as offsets.

One Python process of Spark holds the reader, with its connection and delivery tags, until the query ends; a second
process only plans. So nothing is opened before Spark first requests an offset, and the reader's copy in a task is
empty: the task's partition lists the files to read.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from ematix_flow.dataplane.spark_tasks import stream_source
from ematix_flow.dataplane.task_errors import CarriedError, to_carried_error
from ematix_flow.foundation.errors import FlowError, RunFailed
from ematix_flow.foundation.redact import mask
from ematix_flow.spool import segments
from ematix_flow.spool.folder import spool_folder_at
from ematix_flow.spool.ledger import SpoolOffset
from ematix_flow.spool.receiver import MakeReceiver, SpoolLimits
from ematix_flow.spool.receiver_thread import ReceiverThread
from ematix_flow.spool.segments import Segment
from ematix_flow.spool.spool import Spool
from ematix_flow.storage.paths import LakePath
from ematix_flow.storage.s3_path import S3Path

_FIRST_WAIT, _WAIT, _FOR_EVER = 1.0, 0.1, 1e9
_ROWS_OF_A_TASK = 20_000
_FAREWELL_SECONDS = 2.0


@dataclass(frozen=True)
class SpoolReaderSettings:
    """The settings of the process that holds the reader."""

    folder: LakePath
    topic: str
    make: MakeReceiver
    limits: SpoolLimits


class SegmentFiles(InputPartition):
    """The files of one task."""

    def __init__(self, files: tuple[str | S3Path, ...]) -> None:
        super().__init__(files)
        self.files = files


class SpoolReader(DataSourceStreamReader):
    """The reader that Spark calls; every answer but the first comes from files that are already on disk."""

    def __init__(self, settings: SpoolReaderSettings) -> None:
        self._settings: SpoolReaderSettings | None = settings
        self._spool: Spool | None = None
        self._receiver: ReceiverThread | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return an empty state: tasks only read files, and get neither the connection nor its secrets."""
        return {"_settings": None, "_spool": None, "_receiver": None}

    def initialOffset(self) -> dict[str, int]:  # noqa: N802  Spark's own name
        try:
            return self._opened()[1].initial().to_dict()
        except Exception as exc:
            raise _task_error(exc) from exc

    def latestOffset(self) -> dict[str, int]:  # noqa: N802
        try:
            settings, spool = self._opened()
            if self._receiver is not None:
                return spool.latest(_WAIT).to_dict()
            spool.begin()
            self._receiver = ReceiverThread(spool, settings.make, settings.limits)
            self._receiver.start()
            _on_sigterm(self._farewell)
            return spool.latest(_FOR_EVER if settings.limits.drain else _FIRST_WAIT).to_dict()
        except Exception as exc:
            raise _task_error(exc) from exc

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        try:
            _, spool = self._opened()
            chosen = spool.plan(SpoolOffset.of(start), SpoolOffset.of(end))
            return [
                SegmentFiles(tuple(spool.path(segment) for segment in group)) for group in distribute_segments(chosen)
            ]
        except Exception as exc:
            raise _task_error(exc) from exc

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if not isinstance(partition, SegmentFiles):
            raise AssertionError(f"not a part of a spool: {partition!r}")
        for path in partition.files:
            try:
                yield from segments.read_segment(path)
            except FileNotFoundError as exc:
                raise _task_error(_unshared(str(path))) from exc

    def commit(self, end: dict[str, int]) -> None:
        try:
            self._opened()[1].commit(SpoolOffset.of(end))
        except Exception as exc:
            raise _task_error(exc) from exc

    def stop(self) -> None:
        """Stop the receiver thread at once: Spark has ended the query and reports no further commit."""
        if self._receiver is not None:
            self._receiver.finish(0.0)

    def _farewell(self) -> None:
        """Stop the receiver thread after a short wait: at SIGTERM, Spark is just reporting the last commit."""
        if self._receiver is not None:
            self._receiver.finish(_FAREWELL_SECONDS)

    def _opened(self) -> tuple[SpoolReaderSettings, Spool]:
        if self._settings is None:
            raise AssertionError("this reader is a copy for tasks")
        if self._spool is None:
            self._spool = Spool(spool_folder_at(self._settings.folder), self._settings.limits, self._settings.topic)
        return self._settings, self._spool


def distribute_segments(chosen: Sequence[Segment]) -> list[list[Segment]]:
    """Group neighbouring segments, up to the row limit of one task."""
    groups: list[list[Segment]] = []
    for segment in chosen:
        if groups and segment.end - groups[-1][0].first <= _ROWS_OF_A_TASK:
            groups[-1].append(segment)
        else:
            groups.append([segment])
    return groups


def data_source(name: str, settings: SpoolReaderSettings) -> type[DataSource]:
    """Return the data source of one stream under this name."""
    return stream_source(name, segments.DDL, partial(SpoolReader, settings))


def _on_sigterm(work: Any) -> None:
    """Call `work` at SIGTERM, with which Spark ends its Python processes; only a main thread can install that."""
    if threading.current_thread() is not threading.main_thread():
        return

    def end(*_: object) -> None:
        try:
            work()
        finally:
            os._exit(0)

    signal.signal(signal.SIGTERM, end)


def _unshared(path: str) -> FlowError:
    return RunFailed(
        f"a task cannot see the spool's file {path}",
        hint="where tasks run on several machines, checkpoint= must name a folder that all of them share",
    )


def _task_error(exc: Exception) -> CarriedError:
    return to_carried_error(exc, lambda error: RunFailed(mask(str(error) or type(error).__name__)))
