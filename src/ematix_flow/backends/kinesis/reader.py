"""Kinesis as a streaming data source of Spark, with shards as partitions and positions as offsets.

To find the end of a batch, a bounded number of records is fetched, and only their sequence numbers are kept. Tasks then
fetch the same records once more.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from ematix_flow.backends.kinesis.client import MOST_RECORDS, Access, Expired, Got, Kinesis
from ematix_flow.backends.kinesis.retention import Ends, Horizon, first_after
from ematix_flow.backends.kinesis.shards import Position, Standing, number_of
from ematix_flow.families.carry import CarriedError, carried_error
from ematix_flow.families.spool.segments import DDL, schema
from ematix_flow.foundation.errors import FlowError, PlanError, RunFailed
from ematix_flow.foundation.redact import mask

_LOOKS = 5
"""The requests for one shard in one pass: the service allows as many per second."""
_SHARDS_SECONDS = 10.0
_DRAIN_SECONDS = 600.0


@dataclass(frozen=True)
class Settings:
    """The settings of the process that holds the reader."""

    access: Access
    start: Standing
    max_rows: int | None = None
    drains: bool = False
    """Whether one batch takes everything that is there."""
    reached: Standing | None = None
    """The end of the last planned micro-batch; None for the first, which begins at `start` even when repeated."""
    stream: str = "NAME"
    ends: Ends | None = None
    """The times, saved beside the checkpoint, at which shards had nothing new."""


class Part(InputPartition):
    """The records of one shard after `start`, up to and including `end`."""

    def __init__(self, shard: str, start: str, end: str, first: str | None = None) -> None:
        super().__init__((shard, start, end, first))
        self.shard, self.start, self.end, self.first = shard, start, end, first


class KinesisReader(DataSourceStreamReader):
    """The reader that Spark calls for one stream."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._standing: Standing | None = None
        self._iterators: dict[str, str] = {}
        self._asked_for_shards = 0.0
        self._horizon = Horizon(settings.stream, settings.ends)
        self._firsts: dict[str, tuple[Position, str]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {"_settings": self._settings}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["_settings"])  # type: ignore[misc]

    def initialOffset(self) -> dict[str, str]:  # noqa: N802  Spark's own names
        """Return the start of the stream, still without shards: `latestOffset` adds them."""
        return self._settings.start.told()

    def latestOffset(self) -> dict[str, str]:  # noqa: N802
        """Return the positions after one pass over the shards, or after as many as it takes to drain them."""
        try:
            standing = self._standing or self._settings.reached or self._settings.start
            self._standing = self._drained(standing) if self._settings.drains else self._looked(standing)
            return self._standing.told()
        except Exception as exc:
            raise _carried(exc) from exc

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> Sequence[InputPartition]:
        """Return one partition for each shard that moved; after a restart, `end` also restores the positions."""
        before, after = Standing.of(start), Standing.of(end)
        if self._standing is None:
            self._standing = after
        try:
            return [
                Part(name, str(before.at(name)), str(at), self._first(name, before.at(name)))
                for name, at in after.positions.items()
                if at.sequence is not None and at.sequence != before.at(name).sequence
            ]
        except Exception as exc:
            raise _carried(exc) from exc

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the records of one partition, as envelopes."""
        if not isinstance(partition, Part):
            raise AssertionError(f"not a part of a stream: {partition!r}")
        try:
            yield from read_part(Kinesis(self._settings.access), partition, stream=self._settings.stream)
        except Exception as exc:
            raise _carried(exc) from exc

    def _drained(self, standing: Standing) -> Standing:
        """Repeat passes until nothing is left, so that a draining run includes everything present at its start."""
        until = time.monotonic() + _DRAIN_SECONDS
        while True:
            before = standing
            self._asked_for_shards = 0.0
            standing = self._looked(standing)
            if standing == before or time.monotonic() > until:
                return standing

    def _looked(self, standing: Standing) -> Standing:
        client = Kinesis(self._settings.access)
        if time.monotonic() - self._asked_for_shards > _SHARDS_SECONDS or not self._asked_for_shards:
            shards = client.shards()
            if self._standing is not None or self._settings.reached is not None:
                self._horizon.refuse_missed(client, standing, shards)
            standing = standing.joined_by(shards)
            self._asked_for_shards = time.monotonic()
        names = standing.open
        most = max(1, (self._settings.max_rows or MOST_RECORDS * max(1, len(names))) // max(1, len(names)))
        for name in names:
            position = self._peeked(client, name, standing.at(name), most)
            standing = standing.moved(name, position)
            if position.is_end:
                self._asked_for_shards = 0.0  # its children exist already
        return standing

    def _peeked(self, client: Kinesis, shard: str, position: Position, most: int) -> Position:
        """Return the position at most `most` records on; raise PlanError if unread records before them expired."""
        known = self._horizon.known(shard)
        reached, first = self._followed(client, shard, position, most)
        if first is not None:
            self._horizon.refuse_loss(client, shard, position, known)
            if known is not None or position.sequence is not None:
                self._firsts[shard] = (position, first)
        return reached

    def _followed(self, client: Kinesis, shard: str, position: Position, most: int) -> tuple[Position, str | None]:
        """Return the position behind the records fetched, and the sequence number of the first one."""
        left, first = most, None
        for _ in range(_LOOKS if not self._settings.drains else 10_000):
            got = self._next(client, shard, position, left)
            if got.records:
                first = first or str(got.records[0]["SequenceNumber"])
                position = position.after(str(got.records[-1]["SequenceNumber"]))
                left -= len(got.records)
                self._horizon.reached(shard, got.records[-1]["ApproximateArrivalTimestamp"])
            if got.following is None:
                self._iterators.pop(shard, None)
                return position.ended(), first
            self._iterators[shard] = got.following
            at_end = not got.records and not got.behind_ms
            if at_end:
                self._horizon.quiet(shard)
            if left <= 0 or at_end:
                break
        return position, first

    def _first(self, shard: str, position: Position) -> str | None:
        """Return the record that must follow a position; for a repeated micro-batch it is looked up."""
        found = self._firsts.get(shard)
        if found is not None and found[0] == position:
            return found[1]
        if position.sequence is None:  # a start takes what is retained
            return None
        client = Kinesis(self._settings.access)
        first = first_after(client, shard, position)
        if first is not None:
            self._horizon.refuse_loss(client, shard, position, None)
            self._firsts[shard] = (position, first)
        return first

    def _next(self, client: Kinesis, shard: str, position: Position, most: int) -> Got:
        kept = self._iterators.pop(shard, None)
        if kept is not None:
            try:
                return client.records(kept, most=most)
            except Expired:
                pass  # no request for some minutes
        return client.records(client.iterator(shard, position), most=most)


def read_part(client: Kinesis, part: Part, *, stream: str = "NAME") -> Iterator[Any]:
    """Yield the records of a part, as envelopes; raise PlanError when its first or its last record is missing."""
    last = int(Position.of(part.end).sequence or 0)
    position, first, horizon = Position.of(part.start), part.first, Horizon(stream, None)
    iterator: str | None = client.iterator(part.shard, position)
    while iterator is not None:
        try:
            got = client.records(iterator)
        except Expired:
            iterator = client.iterator(part.shard, position)
            continue
        wanted = [record for record in got.records if int(record["SequenceNumber"]) <= last]
        if wanted:
            if first is not None and str(wanted[0]["SequenceNumber"]) != first:
                break
            if horizon.known(part.shard) is not None:
                horizon.refuse_loss(client, part.shard, position, horizon.known(part.shard))
            first = None
            yield envelopes(client.access.stream, part.shard, wanted)
            position = position.after(str(wanted[-1]["SequenceNumber"]))
            horizon.reached(part.shard, wanted[-1]["ApproximateArrivalTimestamp"])
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
    import pyarrow as pa

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


def data_source(name: str, settings: Settings) -> type[DataSource]:
    """Return a data source class for this stream: Spark takes classes, and options would show secrets in its plans."""

    class KinesisDataSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return name

        def schema(self) -> str:
            return DDL

        def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802
            return KinesisReader(settings)

    return KinesisDataSource


def _carried(exc: Exception) -> CarriedError:
    return carried_error(exc, _translate)


def _translate(exc: Exception) -> FlowError:
    return RunFailed(f"Kinesis cannot be read: {mask(str(exc))}", hint="see the state of the stream")
