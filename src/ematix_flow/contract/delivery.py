"""Delivery guarantees of a stream between two systems, derived from their manifests."""

from __future__ import annotations

from ematix_flow.contract.backend import EFFECTIVELY_ONCE, Backend
from ematix_flow.contract.stream import AT_LEAST_ONCE, EXACTLY_ONCE

MEANINGS = {
    "once": "effectively once. Rows and token are published in one step: whatever is killed, every row is visible once. "
    "Messages of RabbitMQ and Pub/Sub are recognised by their message id; one without an id that the broker delivers "
    "again, because it did not receive the acknowledgement, is another message",
    "exactly": 'exactly once for readers that read committed messages only, with `delivery="exactly_once"`: each input '
    "partition has a transaction of its own that carries the offsets; at least once otherwise",
    "at least": "at least once. After a crash the messages of one micro-batch may be sent again, each with the id that it "
    "had the first time, so that readers can drop it: the header `ematix-message-id` of Kafka, the property `message_id` of "
    "RabbitMQ, the attribute `ematix-message-id` of Pub/Sub. A record of Kinesis has no place for one",
}
_SHORT = {EFFECTIVELY_ONCE: "once", EXACTLY_ONCE: "exactly", AT_LEAST_ONCE: "at least"}


def stream_delivery(source: Backend, target: Backend) -> str:
    """Return the strongest delivery guarantee of a stream from `source` to `target`."""
    if target.batch_sink is not None:
        return target.delivery
    # A transaction can carry the offsets of its own broker only.
    if target.stream_delivery == EXACTLY_ONCE and source.name != target.name:
        return AT_LEAST_ONCE
    return target.stream_delivery


def short(delivery: str) -> str:
    """Return the short name of a delivery guarantee, a key of `MEANINGS`."""
    return _SHORT[delivery]
