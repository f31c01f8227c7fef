"""Kinesis as a streaming data source of Spark's: shards are partitions, positions are offsets.

How far a batch goes is found by looking: records are fetched, bounded, and only their sequence numbers kept. Tasks then
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
"""Requests for one shard in one look: the service allows as many a second."""
_SHARDS_SECONDS = 10.0
_DRAIN_SECONDS = 600.0


@dataclass(frozen=True)
class Settings:
    """What the process that holds the reader needs to know."""

    access: Access
    start: Standing
    max_rows: int | None = None
    drains: bool = False
    """Whether one batch takes everything that is there."""
    reached: Standing | None = None
    """Where the last micro-batch ends that was ever planned; the first of all begins at `start` whenever it is done."""
    stream: str = "NAME"
    ends: Ends | None = None
    """What is known beside the checkpoint about shards without anything new."""


class Part(InputPartition):
    """The records of one shard after a position, up to and with another."""

    def __init__(self, shard: str, start: str, end: str, first: str | None = None) -> None:
        super().__init__((shard, start, end, first))
        self.shard, self.start, self.end, self.first = shard, start, end, first


class KinesisReader(DataSourceStreamReader):
    """Answers Spark's questions about one stream."""

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
        """Where the stream begins, in no shard yet: shards join when one looks."""
        return self._settings.start.told()

    def latestOffset(self) -> dict[str, str]:  # noqa: N802
        """As far as one look goes."""
        try:
            standing = self._standing or self._settings.reached or self._settings.start
            self._standing = self._drained(standing) if self._settings.drains else self._looked(standing)
            return self._standing.told()
        except Exception as exc:
            raise _carried(exc) from exc

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> Sequence[InputPartition]:
        """One for each shard that moved; after a restart this tells where the stream stands."""
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
        """The records of one part, as envelopes."""
        if not isinstance(partition, Part):
            raise AssertionError(f"not a part of a stream: {partition!r}")
        try:
            yield from read_part(Kinesis(self._settings.access), partition, stream=self._settings.stream)
        except Exception as exc:
            raise _carried(exc) from exc

    def _drained(self, standing: Standing) -> Standing:
        """Until nothing is left, so that a run which drains ends with everything that was there when it began."""
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
                self._asked_for_shards = 0.0  # its children are there already
        return standing

    def _peeked(self, client: Kinesis, shard: str, position: Position, most: int) -> Position:
        """How far a shard goes, at most so many records on; what was fetched must be all that followed."""
        known = self._horizon.known(shard)
        reached, first = self._followed(client, shard, position, most)
        if first is not None:
            self._horizon.refuse_loss(client, shard, position, known)
            if known is not None or position.sequence is not None:
                self._firsts[shard] = (position, first)
        return reached

    def _followed(self, client: Kinesis, shard: str, position: Position, most: int) -> tuple[Position, str | None]:
        """The last record of those that were fetched, and the first."""
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
        """The record that must follow a position; of a micro-batch that is done again it is looked for."""
        found = self._firsts.get(shard)
        if found is not None and found[0] == position:
            return found[1]
        if position.sequence is None:  # a beginning takes what is kept
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
                pass  # nothing was asked for some minutes
        return client.records(client.iterator(shard, position), most=most)


def read_part(client: Kinesis, part: Part, *, stream: str = "NAME") -> Iterator[Any]:
    """Fetch the records of a part; one that is missing at its beginning or at its end stops the stream."""
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
    """Records in the form of every broker's messages."""
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
    """A class for this one stream: Spark takes classes, and options would show secrets in its plans."""

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
