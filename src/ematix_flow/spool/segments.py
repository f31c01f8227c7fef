"""Segments: Arrow files of messages, with the envelope columns that all brokers share."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ematix_flow.contract.stream import ENVELOPE
from ematix_flow.foundation.lazy_imports import pa, pc
from ematix_flow.spool.receiver import Delivery, identity
from ematix_flow.storage.s3_path import S3Path

_NAME = re.compile(r"(\d{12})-(\d{15})-(\d{7})\.arrow")
DDL = ", ".join(f"`{name}` {kind}" for name, kind in ENVELOPE)


@dataclass(frozen=True, order=True)
class Segment:
    """Messages that were written together; the file's name contains all its fields."""

    number: int
    first: int
    """The position of its first message among all that the spool ever received."""
    rows: int

    @property
    def end(self) -> int:
        """Return the position behind its last message."""
        return self.first + self.rows

    @property
    def name(self) -> str:
        """Return the file's name."""
        return f"{self.number:012d}-{self.first:015d}-{self.rows:07d}.arrow"

    @classmethod
    def of(cls, name: str) -> Segment | None:
        """Return the segment that a file holds; None for another file.

        >>> Segment.of(Segment(7, 1200, 30).name)
        Segment(number=7, first=1200, rows=30)
        """
        match = _NAME.fullmatch(name)
        return cls(*map(int, match.groups())) if match else None


def schema() -> pa.Schema:
    """Return the Arrow schema of the envelope columns."""
    header = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    types = {
        "BINARY": pa.binary(),
        "STRING": pa.string(),
        "INT": pa.int32(),
        "BIGINT": pa.int64(),
        "TIMESTAMP": pa.timestamp("us", "UTC"),
    }
    return pa.schema(
        [pa.field(name, types.get(kind) or pa.list_(pa.field("element", header))) for name, kind in ENVELOPE]
    )


def encode_segment(segment: Segment, messages: Sequence[Delivery], topic: str) -> bytes:
    """Return the file content of a segment; the spool's positions fill the `offset` column."""
    columns: dict[str, list[Any]] = {
        "key": [message.key for message in messages],
        "value": [message.value for message in messages],
        "headers": [_headers(message) for message in messages],
        "topic": [topic] * len(messages),
        "partition": [None] * len(messages),
        "offset": list(range(segment.first, segment.end)),
        "message_id": [message.message_id for message in messages],
        "timestamp": [message.timestamp for message in messages],
    }
    form = schema()
    arrays = [pa.array(columns[field.name], field.type) for field in form]
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4" if pa.Codec.is_available("lz4") else None)
    with pa.ipc.new_file(sink, form, options=options) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=form))
    return bytes(sink.getvalue())


def _headers(message: Delivery) -> list[dict[str, Any]] | None:
    if message.headers is None:
        return None
    return [{"key": name, "value": value} for name, value in message.headers]


def read_segment(path: str | S3Path) -> Iterator[pa.RecordBatch]:
    """Yield the record batches of a file."""
    with pa.OSFile(path) if isinstance(path, str) else pa.BufferReader(path.read_bytes()) as source:
        reader = pa.ipc.open_file(source)
        for number in range(reader.num_record_batches):
            yield reader.get_batch(number)


def segment_identities(path: str | S3Path) -> list[str | None]:
    """Return the identity of each message of a file."""
    known_ids: list[str | None] = []
    for batch in read_segment(path):
        ids, values = (batch.column(batch.schema.get_field_index(name)) for name in ("message_id", "value"))
        known_ids += [identity(known, value) for known, value in zip(ids.to_pylist(), values.to_pylist(), strict=True)]
    return known_ids


def oldest_message_time(path: str | S3Path) -> float | None:
    """Return when the first message of a file was sent, in seconds since the epoch; None without any timestamp."""
    sent = [pc.min(batch.column(batch.schema.get_field_index("timestamp"))).as_py() for batch in read_segment(path)]
    return min((moment.timestamp() for moment in sent if moment is not None), default=None)
