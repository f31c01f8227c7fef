"""A stream of Kinesis as a target: records in batches, those that were refused sent again."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from ematix_flow.backends.kinesis.client import Access, Kinesis
from ematix_flow.contract.stream import BrokerJob
from ematix_flow.families.carry import staging
from ematix_flow.families.message_ids import COLUMNS, messages
from ematix_flow.families.small_arrow import row_batch
from ematix_flow.foundation import fault
from ematix_flow.foundation.errors import BadValue, FlowError, RunFailed
from ematix_flow.foundation.redact import mask

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ematix_flow.declare.connections import KinesisConnection

_MOST_RECORDS = 500
_MOST_BYTES = 5 * 1024**2
_LARGEST = 1024**2
_LONGEST_KEY = 256

Record = tuple[str, bytes]
"""Partition key and data."""


class KinesisSink:
    """The stream of one connection; a place is what its partition keys begin with."""

    def __init__(self, connection: KinesisConnection) -> None:
        self._connection = connection

    def check(self, place: str) -> None:
        """Refuse a service that does not answer, and a stream that is not there."""
        Kinesis(Access.of(self._connection)).ask()

    def most_bytes(self, place: str, *, exactly_once: bool = False) -> int:
        """What a message may weigh, beside a partition key that is as long as can be."""
        return _LARGEST - _LONGEST_KEY

    def send(self, job: BrokerJob, frame: DataFrame) -> int:
        """Every task sends its rows and waits until each was taken; rows sent."""
        work = staging(_sender(Access.of(self._connection), job, os.getpid()), _translate)
        outcome = frame.selectExpr(*COLUMNS).mapInArrow(work, "rows BIGINT").collect()
        return sum(row["rows"] for row in outcome)


def _sender(access: Access, job: BrokerJob, driver: int) -> Any:
    def send(batches: Iterator[Any]) -> Iterator[Any]:
        client, sent = Kinesis(access), 0
        records = ((partition_key(job.place, key, name), value) for name, key, value, _ in messages(job, batches))
        for some in grouped(records, access.at):
            sent += client.put(some)
            fault.point("mid_stage", victim=driver)
        yield row_batch({"rows": sent})

    return send


def partition_key(prefix: str, key: bytes | None, name: str) -> str:
    """Rows of one key go to one shard, in their order; rows without one are spread.

    >>> partition_key("eu-", b"42", "x"), partition_key("", None, "w/1/0-ab-0")
    ('eu-42', 'w/1/0-ab-0')
    """
    made = prefix + (_text(key) if key is not None else name)
    return made if 0 < len(made) <= _LONGEST_KEY else sha256(made.encode()).hexdigest()


def _text(key: bytes) -> str:
    try:
        return key.decode()
    except UnicodeDecodeError:
        return key.hex()


def grouped(records: Iterable[Record], at: str) -> Iterator[list[Record]]:
    """As many records as one request takes."""
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
