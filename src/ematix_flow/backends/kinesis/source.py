"""A Kinesis stream as stream source: envelopes by our own data source, lag and lost records by a client."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from ematix_flow.backends.kinesis.client import KinesisClient, KinesisLogin
from ematix_flow.backends.kinesis.retention import ShardEnds, lost_shards, retention_refusal
from ematix_flow.backends.kinesis.shards import FLOOR, ShardPosition, ShardPositions
from ematix_flow.contract.stream import LostRows, Offsets, PartitionLag, StreamRead, StreamSource
from ematix_flow.declare.connections import KinesisConnection
from ematix_flow.foundation.errors import PlanError, RunFailed
from ematix_flow.storage.addresses import path_of_address
from ematix_flow.storage.paths import read_text_if_exists, write_atomically
from ematix_flow.storage.spark_checkpoint import last_planned

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_USABLE = ("ACTIVE", "UPDATING")
_FIRST = "kinesis_start.json"
"""A file in Spark's checkpoint folder, so that a new checkpoint does not have it."""


class KinesisSource(StreamSource):
    """The stream of a connection, or another one of the same account that the query names."""

    envelopes = True

    def __init__(self, connection: KinesisConnection) -> None:
        self._connection = connection

    def check(self, read: StreamRead) -> None:
        """Raise a FlowError for a service that does not answer, a refused login, or a missing stream."""
        client = self._client(read)
        state = client.describe()
        if state not in _USABLE:
            raise RunFailed(f"{client.access.at} is {state}", hint="wait until it is ACTIVE")
        _initial_positions(read.start)

    def frame(self, spark: SparkSession, read: StreamRead) -> DataFrame:
        """Return a streaming frame of envelopes; raise PlanError when unread records have expired."""
        from ematix_flow.backends.kinesis.reader import KinesisReaderSettings, data_source

        kept = last_planned(read.checkpoint, read.number)
        self._refuse_loss(read)
        settings = KinesisReaderSettings(
            self._client(read).access, _first_positions(read, is_new=not kept), read.max_rows, bool(read.options.get("drain")),
            reached=ShardPositions.of(kept) if kept else None, stream=read.stream, ends=ShardEnds.beside(read),
        )  # fmt: skip
        name = f"flow_kinesis_{uuid.uuid4().hex}"
        spark.dataSource.register(data_source(name, settings))
        return spark.readStream.format(name).load()

    def lag(self, read: StreamRead, end: Offsets) -> Sequence[PartitionLag]:
        """Return how many seconds each shard is behind its end; the service does not count records."""
        client, standing = self._client(read), ShardPositions.of(end)
        standing = standing.with_new_shards(client.shards())
        lags, at_end = [], {}
        for shard in standing.open_shards:
            got = client.records(client.iterator(shard, standing.position_of(shard)), most=1)
            is_there = not got.records and not got.behind_ms
            lags.append(PartitionLag(f"{client.access.stream}-{shard}", 0 if is_there else None, got.behind_ms / 1000))
            if is_there:
                at_end[shard] = standing.position_of(shard)
        ShardEnds.beside(read).record_empty(at_end)
        return lags

    def lost(self, read: StreamRead, end: Offsets) -> Sequence[LostRows]:
        """Return the shards in which records behind a position are gone, or may be."""
        return lost_shards(self._client(read), ShardPositions.of(end), ShardEnds.beside(read))

    def _refuse_loss(self, read: StreamRead) -> None:
        """Raise PlanError when unread records expired: Kinesis would silently begin with its oldest record."""
        done = _last_committed(read)
        gone = self.lost(read, done) if done is not None else ()
        if gone:
            raise retention_refusal(read.stream, gone)

    def offsets_at(self, read: StreamRead, moment: datetime) -> Offsets:
        """Return the offsets of every shard at a point in time, which is UTC without a zone."""
        aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=timezone.utc)
        return {FLOOR: str(ShardPosition(moment_ms=int(aware.timestamp() * 1000)))}

    def _client(self, read: StreamRead) -> KinesisClient:
        return KinesisClient(KinesisLogin.of(self._connection, read.query))


def _last_committed(read: StreamRead) -> Mapping[str, Any] | None:
    """Return the end of the last micro-batch that is in the targets; the next one is read again."""
    spark, line = path_of_address(read.checkpoint) / "spark", read.number + 2
    commits = spark / "commits"
    done = [int(item.name) for item in commits.iterdir() if item.name.isdigit()] if commits.is_dir() else []
    kept = read_text_if_exists(spark / "offsets" / str(max(done))) if done else None
    lines = (kept or "").splitlines()
    position: Mapping[str, Any] | None = json.loads(lines[line]) if len(lines) > line and lines[line] != "-" else None
    return position


def _first_positions(read: StreamRead, *, is_new: bool) -> ShardPositions:
    """Return the start of the first micro-batch, saved because `latest` would differ when the batch is repeated."""
    note = path_of_address(read.checkpoint) / "spark" / read.state_name(_FIRST)
    kept = None if is_new else read_text_if_exists(note)
    if kept is not None:
        return ShardPositions.of(json.loads(kept))
    start = _initial_positions(read.start)
    if is_new:
        write_atomically(note, json.dumps(start.to_checkpoint()))
    return start


def _initial_positions(start: str) -> ShardPositions:
    """Return the start of a stream without a checkpoint; a point in time also applies to shards that appear later."""
    if start == "earliest":
        return ShardPositions(ShardPosition(), {})
    if start == "latest":
        return ShardPositions(ShardPosition(moment_ms=int(time.time() * 1000)), {})
    try:
        data = json.loads(start)
        return ShardPositions.of({str(name): str(text) for name, text in data.items()})
    except (ValueError, TypeError, AttributeError):
        raise PlanError(
            f"a stream of Kinesis cannot start at {start!r}",
            hint='say earliest, latest, {"*": "AT:1767225600000"} or {"shardId-000000000000": "<sequence number>"}',
        ) from None
