"""A Kinesis stream as a target: records are sent in batches, and refused ones are sent again."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from ematix_flow.backends.kinesis.client import KinesisClient, KinesisLogin
from ematix_flow.contract.stream import BrokerJob, BrokerSink
from ematix_flow.dataplane.arrow_values import row_batch
from ematix_flow.dataplane.task_errors import staging_task
from ematix_flow.declare.connections import KinesisConnection
from ematix_flow.foundation import fault
from ematix_flow.foundation.errors import BadValue, FlowError, RunFailed
from ematix_flow.foundation.redact import mask
from ematix_flow.messages.message_ids import COLUMNS, messages

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


_MOST_RECORDS = 500
_MOST_BYTES = 5 * 1024**2
_LARGEST = 1024**2
_LONGEST_KEY = 256

Record = tuple[str, bytes]
"""Partition key and data."""


class KinesisSink(BrokerSink):
    """The stream of one connection; a job's place is the prefix of its partition keys."""

    def __init__(self, connection: KinesisConnection) -> None:
        self._connection = connection

    def check(self, place: str) -> None:
        """Raise a FlowError when the service does not answer or the stream does not exist."""
        KinesisClient(KinesisLogin.of(self._connection)).describe()

    def max_message_bytes(self, place: str, *, exactly_once: bool = False) -> int:
        """Return the most bytes of a message, beside a partition key of the greatest length."""
        return _LARGEST - _LONGEST_KEY

    def send(self, job: BrokerJob, frame: DataFrame) -> int:
        """Send every row from the tasks, wait until each is accepted, and return the number sent."""
        work = staging_task(_sender(KinesisLogin.of(self._connection), job, os.getpid()), _translate)
        outcome = frame.selectExpr(*COLUMNS).mapInArrow(work, "rows BIGINT").collect()
        return sum(row["rows"] for row in outcome)


def _sender(access: KinesisLogin, job: BrokerJob, driver: int) -> Any:
    def send(batches: Iterator[Any]) -> Iterator[Any]:
        client, sent = KinesisClient(access), 0
        records = ((partition_key(job.place, key, name), value) for name, key, value, _ in messages(job, batches))
        for some in grouped(records, access.at):
            sent += client.put(some)
            fault.point("mid_stage", victim=driver)
        yield row_batch({"rows": sent})

    return send


def partition_key(prefix: str, key: bytes | None, name: str) -> str:
    """Return the partition key: rows of one key go to one shard in their order; rows without a key are spread.

    >>> partition_key("eu-", b"42", "x"), partition_key("", None, "w/1/0-ab-0")
    ('eu-42', 'w/1/0-ab-0')
    """
    whole_key = prefix + (_text(key) if key is not None else name)
    return whole_key if 0 < len(whole_key) <= _LONGEST_KEY else sha256(whole_key.encode()).hexdigest()


def _text(key: bytes) -> str:
    try:
        return key.decode()
    except UnicodeDecodeError:
        return key.hex()


def grouped(records: Iterable[Record], at: str) -> Iterator[list[Record]]:
    """Yield groups of records that fit into one request; raise BadValue for a record that is too large."""
    some: list[Record] = []
    size = 0
    for key, data in records:
        weight = len(key.encode()) + len(data)
        if weight > _LARGEST:
            raise BadValue(f"a record of {weight} bytes is more than {at} takes (1 MiB)", hint="make it smaller")
        if some and (len(some) == _MOST_RECORDS or size + weight > _MOST_BYTES):
            yield some
            some, size = [], 0
        some.append((key, data))
        size += weight
    if some:
        yield some


def _translate(exc: Exception) -> FlowError:
    return RunFailed(f"Kinesis cannot be written: {mask(str(exc))}", hint="see the state of the stream")
