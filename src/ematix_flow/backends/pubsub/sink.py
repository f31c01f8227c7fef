"""A topic of Pub/Sub as the target of a stream."""

from __future__ import annotations

import base64
import os
from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ematix_flow.backends.pubsub.client import PubSubAddress, get_topic
from ematix_flow.backends.pubsub.errors import translate
from ematix_flow.contract.stream import BrokerJob, BrokerSink
from ematix_flow.dataplane.arrow_values import row_batch
from ematix_flow.dataplane.task_errors import staging_task
from ematix_flow.declare.connections import PubSubConnection
from ematix_flow.foundation import fault
from ematix_flow.foundation.errors import PermissionDenied
from ematix_flow.messages.message_ids import ATTRIBUTE, COLUMNS, messages

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


_AT_ONCE = 2_000
_SECONDS = 60.0
_LARGEST, _FRAME = 10_000_000, 1_024

Outgoing = tuple[bytes, str, dict[str, str]]
"""Data, ordering key, attributes."""


class PubSubSink(BrokerSink):
    """The topics of one project as targets, at least once."""

    def __init__(self, connection: PubSubConnection) -> None:
        self._connection = connection

    def check(self, place: str) -> None:
        """Raise a FlowError when the service does not answer or the topic does not exist."""
        try:
            get_topic(PubSubAddress.of(self._connection), place)
        except PermissionDenied:  # a publish-only login cannot query; a missing topic fails at the first message
            return

    def max_message_bytes(self, place: str, *, exactly_once: bool = False) -> int:
        """Return the most bytes of a message, beside the id that we add and its frame."""
        return _LARGEST - _FRAME

    def send(self, job: BrokerJob, frame: DataFrame) -> int:
        """Send every row from the tasks, wait for the service, and return the number sent."""
        address = PubSubAddress.of(self._connection)
        place = f"topic {job.place!r}"
        work = staging_task(_sender(address, job, os.getpid()), lambda exc: translate(exc, at=address.at, place=place))
        outcome = frame.selectExpr(*COLUMNS).mapInArrow(work, "rows BIGINT").collect()
        return sum(row["rows"] for row in outcome)


def _sender(address: PubSubAddress, job: BrokerJob, driver: int) -> Any:
    def send(batches: Iterator[Any]) -> Iterator[Any]:
        sent = publish(address, job.place, _outgoing(job, batches, driver))
        yield row_batch({"rows": sent})

    return send


def _outgoing(job: BrokerJob, batches: Iterator[Any], driver: int) -> Iterator[Outgoing]:
    for name, key, value, headers in messages(job, batches):
        attributes = {header: _text(content) for header, content in headers}
        yield value, _text(key or b""), {**attributes, ATTRIBUTE: name}
        fault.point("mid_stage", victim=driver)


def publish(address: PubSubAddress, topic: str, outgoing: Iterable[Outgoing]) -> int:
    """Send all messages in order for each key, wait until the service has each, and return their number."""
    sender: Any = None
    path, sent = address.topic(topic), 0
    waiting: deque[Any] = deque()
    with address.translated_errors(f"topic {topic!r}"):
        try:
            for data, key, attributes in outgoing:
                sender = sender or address.sender()
                waiting.append(sender.publish(path, data, ordering_key=key, **_attribute_keywords(attributes)))
                sent += 1
                if len(waiting) >= _AT_ONCE:
                    waiting.popleft().result(timeout=_SECONDS)
            while waiting:
                waiting.popleft().result(timeout=_SECONDS)
        finally:
            if sender is not None:
                sender.stop()
                sender.transport.close()
    return sent


def _attribute_keywords(attributes: dict[str, str]) -> dict[str, str]:
    """Return the attributes as keyword arguments; names of the client's own parameters get an underscore."""
    taken = {"topic", "data", "ordering_key", "retry", "timeout", "self"}
    return {f"{name}_" if name in taken else name: value for name, value in attributes.items()}


def _text(value: bytes) -> str:
    """Return text as it is, other bytes as base64: attributes and keys must be text."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return base64.b64encode(value).decode()
