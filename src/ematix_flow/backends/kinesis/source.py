"""A Kinesis stream as stream source: envelopes by our own data source, lag and lost records by a client."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from ematix_flow.backends.kinesis.client import Access, Kinesis
from ematix_flow.backends.kinesis.retention import Ends, lost, refusal
from ematix_flow.backends.kinesis.shards import FLOOR, Position, Standing
from ematix_flow.contract.stream import Lost, Offsets, PartitionLag, StreamRead
from ematix_flow.families.checkpoints import last_planned
from ematix_flow.families.lake.homes import home_of
from ematix_flow.families.lake.place import read_if_there, write_atomically
from ematix_flow.foundation.errors import PlanError, RunFailed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ematix_flow.declare.connections import KinesisConnection

_USABLE = ("ACTIVE", "UPDATING")
_FIRST = "kinesis_start.json"
"""A file in Spark's checkpoint folder, so that a new checkpoint does not have it."""


class KinesisSource:
    """The stream of a connection, or another one of the same account that the query names."""

    envelopes = True

    def __init__(self, connection: KinesisConnection) -> None:
        self._connection = connection

    def check(self, read: StreamRead) -> None:
        """Raise a FlowError for a service that does not answer, a refused login, or a missing stream."""
        client = self._client(read)
        state = client.ask()
        if state not in _USABLE:
            raise RunFailed(f"{client.access.at} is {state}", hint="wait until it is ACTIVE")
        _beginning(read.start)

    def frame(self, spark: SparkSession, read: StreamRead) -> DataFrame:
        """Return a streaming frame of envelopes; raise PlanError when unread records have expired."""
        from ematix_flow.backends.kinesis.reader import Settings, data_source

        kept = last_planned(read.checkpoint, read.number)
        self._refuse_loss(read)
        settings = Settings(
            self._client(read).access, _begun(read, is_new=not kept), read.max_rows, bool(read.options.get("drain")),
            reached=Standing.of(kept) if kept else None, stream=read.stream, ends=Ends.beside(read),
        )  # fmt: skip
        name = f"flow_kinesis_{uuid.uuid4().hex}"
        spark.dataSource.register(data_source(name, settings))
        return spark.readStream.format(name).load()

    def committed(self, read: StreamRead, end: Offsets) -> None:
        """Do nothing: Kinesis keeps no offsets of its readers."""

    def lag(self, read: StreamRead, end: Offsets) -> Sequence[PartitionLag]:
        """Return how many seconds each shard is behind its end; the service does not count records."""
        client, standing = self._client(read), Standing.of(end)
        standing = standing.joined_by(client.shards())
        made, at_end = [], {}
        for shard in standing.open:
            got = client.records(client.iterator(shard, standing.at(shard)), most=1)
            is_there = not got.records and not got.behind_ms
            made.append(PartitionLag(f"{client.access.stream}-{shard}", 0 if is_there else None, got.behind_ms / 1000))
            if is_there:
                at_end[shard] = standing.at(shard)
        Ends.beside(read).note(at_end)
        return made

    def lost(self, read: StreamRead, end: Offsets) -> Sequence[Lost]:
        """Return the shards in which records behind a position are gone, or may be."""
        return lost(self._client(read), Standing.of(end), Ends.beside(read))

    def _refuse_loss(self, read: StreamRead) -> None:
        """Raise PlanError when unread records expired: Kinesis would silently begin with its oldest record."""
        done = _last_done(read)
        gone = self.lost(read, done) if done is not None else ()
        if gone:
            raise refusal(read.stream, gone)

    def offsets_at(self, read: StreamRead, moment: datetime) -> Offsets:
        """Return the offsets of every shard at a point in time, which is UTC without a zone."""
        aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=timezone.utc)
        return {FLOOR: str(Position(moment_ms=int(aware.timestamp() * 1000)))}

    def close(self) -> None:
        """Do nothing: nothing is held open."""

    def _client(self, read: StreamRead) -> Kinesis:
        return Kinesis(Access.of(self._connection, read.query))


def _last_done(read: StreamRead) -> Mapping[str, Any] | None:
    """Return the end of the last micro-batch that is in the targets; the next one is read again."""
    spark, line = home_of(read.checkpoint) / "spark", read.number + 2
    commits = spark / "commits"
    done = [int(item.name) for item in commits.iterdir() if item.name.isdigit()] if commits.is_dir() else []
    kept = read_if_there(spark / "offsets" / str(max(done))) if done else None
    lines = (kept or "").splitlines()
    found: Mapping[str, Any] | None = json.loads(lines[line]) if len(lines) > line and lines[line] != "-" else None
    return found


def _begun(read: StreamRead, *, is_new: bool) -> Standing:
    """Return the start of the first micro-batch, saved because `latest` would differ when the batch is repeated."""
    note = home_of(read.checkpoint) / "spark" / read.own(_FIRST)
    kept = None if is_new else read_if_there(note)
    if kept is not None:
        return Standing.of(json.loads(kept))
    start = _beginning(read.start)
    if is_new:
        write_atomically(note, json.dumps(start.told()))
    return start


def _beginning(start: str) -> Standing:
    """Return the start of a stream without a checkpoint; a point in time also applies to shards that appear later."""
    if start == "earliest":
        return Standing(Position(), {})
    if start == "latest":
        return Standing(Position(moment_ms=int(time.time() * 1000)), {})
    try:
        said = json.loads(start)
        return Standing.of({str(name): str(text) for name, text in said.items()})
    except (ValueError, TypeError, AttributeError):
        raise PlanError(
            f"a stream of Kinesis cannot start at {start!r}",
            hint='say earliest, latest, {"*": "AT:1767225600000"} or {"shardId-000000000000": "<sequence number>"}',
        ) from None
