"""Kinesis for notebooks: batches of a stream as Arrow, and Arrow batches into it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ematix_flow.backends.kinesis.client import KinesisClient, KinesisLogin
from ematix_flow.backends.kinesis.shards import ShardPosition, ShardPositions
from ematix_flow.backends.kinesis.sink import grouped, partition_key
from ematix_flow.declare.connections import KinesisConnection
from ematix_flow.messages import arrow_batches
from ematix_flow.messages.notebook import (
    BATCH_BYTES,
    BATCH_SIZE,
    NotebookBackend,
    as_batch_iterator,
    positive_option,
)

MAX_EMPTY_POLLS = 10
IDLE_POLL_MS = 200
_BEGINNING = ShardPositions(ShardPosition(), {})


class KinesisBackend(NotebookBackend):
    """A connection to one stream; `KinesisBackend.open("orders", region="us-east-1")`. Payloads are JSON."""

    def __init__(self, connection: KinesisConnection, *, batch_size: int, batch_bytes: int, max_empty_polls: int,
                 idle_poll_ms: int) -> None:  # fmt: skip
        super().__init__(connection)
        self._batch_size, self._batch_bytes = batch_size, batch_bytes
        self._empty_polls, self._pause = max_empty_polls, idle_poll_ms / 1000
        self._committed: Mapping[str, ShardPositions] = {}
        self._read: Mapping[str, ShardPositions] = {}
        self._pending = 0

    @classmethod
    def open(
        cls,
        stream_name: str,
        *,
        region: str | None = None,
        endpoint: str | None = None,
        access_key_id: str | None = None,
        secret_access_key: str | None = None,
        batch_size: int | None = None,
        batch_bytes: int | None = None,
        max_empty_polls: int | None = None,
        idle_poll_ms: int | None = None,
    ) -> KinesisBackend:
        """Return the stream with this name, without connecting; `ping()` does that."""
        connection = KinesisConnection(
            "notebook", stream_name=stream_name, region=region, endpoint=endpoint, access_key_id=access_key_id,
            secret_access_key=secret_access_key,
        )  # fmt: skip
        return cls(
            connection,
            batch_size=positive_option("batch_size", batch_size, BATCH_SIZE),
            batch_bytes=positive_option("batch_bytes", batch_bytes, BATCH_BYTES),
            max_empty_polls=positive_option("max_empty_polls", max_empty_polls, MAX_EMPTY_POLLS),
            idle_poll_ms=positive_option("idle_poll_ms", idle_poll_ms, IDLE_POLL_MS),
        )

    def ping(self) -> bool:
        """Return True when the stream exists and accepts this login; raise a FlowError otherwise."""
        self._client("").describe()
        return True

    @as_batch_iterator
    def iter_arrow_stream(self, query: str = "") -> Iterator[Any]:
        """Yield batches behind the last one read; end when `max_empty_polls` passes in a row found nothing."""
        client, empty = self._client(query), 0
        stream = client.access.stream
        while empty < self._empty_polls:
            records, after = self._gathered(client)
            if not records:
                self._read = {**self._read, stream: after}
                empty += 1
                time.sleep(self._pause)
                continue
            empty = 0
            payloads = [bytes(record["Data"]) for _, record in records]
            batch = arrow_batches.batch_from_json(
                payloads, [f"{shard}:{item['SequenceNumber']}" for shard, item in records]
            )
            # Only when the batch was decoded.
            self._read, self._pending = {**self._read, stream: after}, self._pending + len(records)
            yield batch

    def read_arrow_stream(self, query: str = "") -> list[Any]:
        """Return the same batches as one list."""
        return super().read_arrow_stream(query)

    def write_arrow_stream(self, partition_key_prefix: str, batches: Iterable[Any]) -> int:
        """Send every row as a JSON record, wait until each is accepted, and return the number sent."""
        client, sent = self._client(""), 0
        records = (
            (partition_key(partition_key_prefix, None, secrets.token_hex(8)), payload)
            for batch in batches
            for payload in arrow_batches.batch_to_json(batch)
        )
        for some in grouped(records, client.access.at):
            sent += client.put(some)
        return sent

    def commit_offsets(self) -> None:
        """Mark every batch returned so far as done: `reset_to_committed_offsets` returns to this position."""
        self._committed, self._pending = self._read, 0

    def reset_to_committed_offsets(self) -> None:
        """Read the batches returned since the last commit again."""
        self._read, self._pending = self._committed, 0

    def pending_sequence_count(self) -> int:
        """Return the number of records that were returned and not committed."""
        return self._pending

    def close(self) -> None:
        """Do nothing: nothing is held open."""

    def _client(self, query: str) -> KinesisClient:
        return KinesisClient(KinesisLogin.of(self._connection, query))

    def _gathered(self, client: KinesisClient) -> tuple[Sequence[tuple[str, Any]], ShardPositions]:
        """Return the next records, shard by shard, up to a full batch, and the positions behind them."""
        # Every stream has positions of its own: names of shards repeat from stream to stream.
        read = self._read.get(client.access.stream, _BEGINNING).with_new_shards(client.shards())
        records: list[tuple[str, Any]] = []
        size = 0
        for shard in read.open_shards:
            if len(records) >= self._batch_size or size >= self._batch_bytes:
                break
            position = read.position_of(shard)
            got = client.records(client.iterator(shard, position), most=self._batch_size - len(records))
            if got.records:
                records += [(shard, record) for record in got.records]
                size += sum(len(record["Data"]) for record in got.records)
                position = position.after(str(got.records[-1]["SequenceNumber"]))
            read = read.with_position(shard, position.ended() if got.following is None else position)
        return records, read
