"""Ids for messages that a stream sends: the same when a batch is sent again, so that consumers can drop the second one."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

from ematix_flow.contract.stream import BrokerJob

ATTRIBUTE = "ematix-message-id"
"""Where a broker that gives its own ids carries ours."""
KEY = "message_key"
"""The header that carries the key where a broker has no place for one."""
COLUMNS = (
    "CAST(key AS BINARY) AS key",
    "CAST(value AS BINARY) AS value",
    "CAST(headers AS ARRAY<STRUCT<key: STRING, value: BINARY>>) AS headers",
)
"""What a frame of messages is read as."""
_LONGEST_WRITER = 150


def messages(
    job: BrokerJob, batches: Iterator[Any]
) -> Iterator[tuple[str, bytes | None, bytes, list[tuple[str, bytes]]]]:
    """Id, key, value and headers of every row of one task."""
    ids = MessageIds(job.writer, job.batch, _part())
    for batch in batches:
        columns = [batch.column(batch.schema.get_field_index(name)).to_pylist() for name in ("key", "value", "headers")]
        for key, value, headers in zip(*columns, strict=True):
            pairs = [(item["key"], item["value"] or b"") for item in headers or ()]
            yield ids.of(key, value), key, value or b"", pairs


class MessageIds:
    """`writer/batch/part-content-number` for the messages of one task.

    A batch that is sent again may have its rows in another order; its rows are named by what they hold, so that no two
    different messages ever share an id, and equal ones are numbered.

    >>> ids = MessageIds("orders@1::queue", 7, 0)
    >>> first, second, other = ids.of(None, b"a"), ids.of(None, b"a"), ids.of(None, b"b")
    >>> first.rpartition("-")[0] == second.rpartition("-")[0] != other.rpartition("-")[0]
    True
    """

    def __init__(self, writer: str, batch: int, part: int) -> None:
        if len(writer) > _LONGEST_WRITER:  # brokers take ids of up to 255 bytes
            writer = blake2b(writer.encode(), digest_size=16).hexdigest()
        self._prefix = f"{writer}/{batch}/{part}"
        self._seen: dict[str, int] = {}

    def of(self, key: bytes | None, value: bytes | None) -> str:
        """The id of the next message."""
        digest = blake2b(value or b"", key=blake2b(key or b"", digest_size=32).digest(), digest_size=12).hexdigest()
        number = self._seen.get(digest, 0)
        self._seen[digest] = number + 1
        return f"{self._prefix}-{digest}-{number}"


def _part() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    return int(context.partitionId()) if context is not None else 0
