"""Kinesis as a streaming data source of Spark, with shards as partitions and positions as offsets.

To find the end of a batch, a bounded number of records is fetched, and only their sequence numbers are kept. Tasks then
fetch the same records once more.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from ematix_flow.backends.kinesis.client import MOST_RECORDS, IteratorExpired, KinesisClient, KinesisLogin, ShardRecords
from ematix_flow.backends.kinesis.retention import RetentionHorizon, ShardEnds, first_after
from ematix_flow.backends.kinesis.shards import ShardPosition, ShardPositions, number_of
from ematix_flow.dataplane.spark_tasks import stream_source
from ematix_flow.dataplane.task_errors import CarriedError, to_carried_error
from ematix_flow.foundation.errors import FlowError, PlanError, RunFailed
from ematix_flow.foundation.lazy_imports import pa
from ematix_flow.foundation.redact import mask
from ematix_flow.spool.segments import DDL, schema

_LOOKS = 5
"""The requests for one shard in one pass: the service allows as many per second."""
_SHARDS_SECONDS = 10.0
_DRAIN_SECONDS = 600.0


@dataclass(frozen=True)
class KinesisReaderSettings:
    """The settings of the process that holds the reader."""

    access: KinesisLogin
    start: ShardPositions
    max_rows: int | None = None
    drains: bool = False
    """Whether one batch takes everything that is there."""
    reached: ShardPositions | None = None
    """The end of the last planned micro-batch; None for the first, which begins at `start` even when repeated."""
    stream: str = "NAME"
    ends: ShardEnds | None = None
    """The times, saved beside the checkpoint, at which shards had nothing new."""


class ShardRange(InputPartition):
    """The records of one shard after `start`, up to and including `end`."""

    def __init__(self, shard: str, start: str, end: str, first: str | None = None) -> None:
        super().__init__((shard, start, end, first))
        self.shard, self.start, self.end, self.first = shard, start, end, first


class KinesisReader(DataSourceStreamReader):
    """The reader that Spark calls for one stream."""

    def __init__(self, settings: KinesisReaderSettings) -> None:
        self._settings = settings
        self._standing: ShardPositions | None = None
        self._iterators: dict[str, str] = {}
        self._shards_listed_at = 0.0
        self._horizon = RetentionHorizon(settings.stream, settings.ends)
        self._firsts: dict[str, tuple[ShardPosition, str]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {"_settings": self._settings}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["_settings"])  # type: ignore[misc]

    def initialOffset(self) -> dict[str, str]:  # noqa: N802  Spark's own names
        """Return the start of the stream, still without shards: `latestOffset` adds them."""
        return self._settings.start.to_checkpoint()

    def latestOffset(self) -> dict[str, str]:  # noqa: N802
        """Return the positions after one pass over the shards, or after as many as it takes to drain them."""
        try:
            standing = self._standing or self._settings.reached or self._settings.start
            self._standing = (
                self._read_until_drained(standing) if self._settings.drains else self._look_for_new(standing)
            )
            return self._standing.to_checkpoint()
        except Exception as exc:
            raise _task_error(exc) from exc

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> Sequence[InputPartition]:
        """Return one partition for each shard that moved; after a restart, `end` also restores the positions."""
        before, after = ShardPositions.of(start), ShardPositions.of(end)
        if self._standing is None:
            self._standing = after
        try:
            return [
                ShardRange(name, str(before.position_of(name)), str(at), self._first(name, before.position_of(name)))
                for name, at in after.positions.items()
                if at.sequence is not None and at.sequence != before.position_of(name).sequence
            ]
        except Exception as exc:
            raise _task_error(exc) from exc

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the records of one partition, as envelopes."""
        if not isinstance(partition, ShardRange):
            raise AssertionError(f"not a part of a stream: {partition!r}")
        try:
            yield from read_part(KinesisClient(self._settings.access), partition, stream=self._settings.stream)
        except Exception as exc:
            raise _task_error(exc) from exc

    def _read_until_drained(self, standing: ShardPositions) -> ShardPositions:
        """Repeat passes until nothing is left, so that a draining run includes everything present at its start."""
        until = time.monotonic() + _DRAIN_SECONDS
        while True:
            before = standing
            self._shards_listed_at = 0.0
            standing = self._look_for_new(standing)
            if standing == before or time.monotonic() > until:
                return standing

    def _look_for_new(self, standing: ShardPositions) -> ShardPositions:
        client = KinesisClient(self._settings.access)
        if time.monotonic() - self._shards_listed_at > _SHARDS_SECONDS or not self._shards_listed_at:
            shards = client.shards()
            if self._standing is not None or self._settings.reached is not None:
                self._horizon.refuse_missed(client, standing, shards)
            standing = standing.with_new_shards(shards)
            self._shards_listed_at = time.monotonic()
        names = standing.open_shards
        most = max(1, (self._settings.max_rows or MOST_RECORDS * max(1, len(names))) // max(1, len(names)))
        for name in names:
            position = self._peek(client, name, standing.position_of(name), most)
            standing = standing.with_position(name, position)
            if position.is_end:
                self._shards_listed_at = 0.0  # its children exist already
        return standing

    def _peek(self, client: KinesisClient, shard: str, position: ShardPosition, most: int) -> ShardPosition:
        """Return the position at most `most` records on; raise PlanError if unread records before them expired."""
        known = self._horizon.bound_of(shard)
        reached, first = self._records_after(client, shard, position, most)
        if first is not None:
            self._horizon.refuse_loss(client, shard, position, known)
            if known is not None or position.sequence is not None:
                self._firsts[shard] = (position, first)
        return reached

    def _records_after(
        self, client: KinesisClient, shard: str, position: ShardPosition, most: int
    ) -> tuple[ShardPosition, str | None]:
        """Return the position behind the records fetched, and the sequence number of the first one."""
        left, first = most, None
        for _ in range(_LOOKS if not self._settings.drains else 10_000):
            got = self._next(client, shard, position, left)
            if got.records:
                first = first or str(got.records[0]["SequenceNumber"])
                position = position.after(str(got.records[-1]["SequenceNumber"]))
                left -= len(got.records)
                self._horizon.note_record(shard, got.records[-1]["ApproximateArrivalTimestamp"])
            if got.following is None:
                self._iterators.pop(shard, None)
                return position.ended(), first
            self._iterators[shard] = got.following
            at_end = not got.records and not got.behind_ms
            if at_end:
                self._horizon.note_empty(shard)
            if left <= 0 or at_end:
                break
        return position, first

    def _first(self, shard: str, position: ShardPosition) -> str | None:
        """Return the record that must follow a position; for a repeated micro-batch it is looked up."""
        first_record = self._firsts.get(shard)
        if first_record is not None and first_record[0] == position:
            return first_record[1]
        if position.sequence is None:  # a start takes what is retained
            return None
        client = KinesisClient(self._settings.access)
        first = first_after(client, shard, position)
        if first is not None:
            self._horizon.refuse_loss(client, shard, position, None)
            self._firsts[shard] = (position, first)
        return first

    def _next(self, client: KinesisClient, shard: str, position: ShardPosition, most: int) -> ShardRecords:
        kept = self._iterators.pop(shard, None)
        if kept is not None:
            try:
                return client.records(kept, most=most)
            except IteratorExpired:
                pass  # no request for some minutes
        return client.records(client.iterator(shard, position), most=most)


def read_part(client: KinesisClient, part: ShardRange, *, stream: str = "NAME") -> Iterator[Any]:
    """Yield the records of a part, as envelopes; raise PlanError when its first or its last record is missing."""
    last = int(ShardPosition.of(part.end).sequence or 0)
    position, first, horizon = ShardPosition.of(part.start), part.first, RetentionHorizon(stream, None)
    iterator: str | None = client.iterator(part.shard, position)
    while iterator is not None:
        try:
            got = client.records(iterator)
        except IteratorExpired:
            iterator = client.iterator(part.shard, position)
            continue
        wanted = [record for record in got.records if int(record["SequenceNumber"]) <= last]
        if wanted:
            if first is not None and str(wanted[0]["SequenceNumber"]) != first:
                break
            if horizon.bound_of(part.shard) is not None:
                horizon.refuse_loss(client, part.shard, position, horizon.bound_of(part.shard))
            first = None
            yield envelopes(client.access.stream, part.shard, wanted)
            position = position.after(str(wanted[-1]["SequenceNumber"]))
            horizon.note_record(part.shard, wanted[-1]["ApproximateArrivalTimestamp"])
        if position.sequence is not None and int(position.sequence) >= last:
            return
        if len(wanted) < len(got.records):
            break
        iterator = got.following
    raise PlanError(
        f"{client.access.at} no longer keeps records of {part.shard} that the stream has not read",
        hint=f"go on behind the gap, knowingly: flow stream rewind {stream} --to earliest",
    )


def envelopes(stream: str, shard: str, records: Sequence[Any]) -> Any:
    """Return the records with the envelope columns that all brokers share."""
    count = len(records)
    columns: dict[str, list[Any]] = {
        "key": [record["PartitionKey"].encode() for record in records],
        "value": [bytes(record["Data"]) for record in records],
        "headers": [None] * count,
        "topic": [stream] * count,
        "partition": [number_of(shard)] * count,
        "offset": [None] * count,
        "message_id": [f"{shard}:{record['SequenceNumber']}" for record in records],
        "timestamp": [record.get("ApproximateArrivalTimestamp") for record in records],
    }
    form = schema()
    return pa.RecordBatch.from_arrays([pa.array(columns[field.name], field.type) for field in form], schema=form)


def data_source(name: str, settings: KinesisReaderSettings) -> type[DataSource]:
    """Return the data source of one stream under this name."""
    return stream_source(name, DDL, partial(KinesisReader, settings))


def _task_error(exc: Exception) -> CarriedError:
    return to_carried_error(exc, _translate)


def _translate(exc: Exception) -> FlowError:
    return RunFailed(f"Kinesis cannot be read: {mask(str(exc))}", hint="see the state of the stream")
