"""Topics and subscriptions of a Pub/Sub as publishers and operators see them."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.services.pubsub import PROJECT


@dataclass(frozen=True)
class Project:
    """The project of the tests at one endpoint."""

    endpoint: str

    def publisher(self) -> Any:
        import grpc
        from google.pubsub_v1 import PublisherClient
        from google.pubsub_v1.services.publisher.transports import PublisherGrpcTransport

        return PublisherClient(transport=PublisherGrpcTransport(channel=grpc.insecure_channel(self.endpoint)))

    def subscriber(self) -> Any:
        import grpc
        from google.pubsub_v1 import SubscriberClient
        from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcTransport

        return SubscriberClient(transport=SubscriberGrpcTransport(channel=grpc.insecure_channel(self.endpoint)))

    def new_topic(self, name: str | None = None) -> str:
        name = name or f"t-{secrets.token_hex(6)}"
        with self.publisher() as client:
            client.create_topic(name=f"projects/{PROJECT}/topics/{name}")
        return name

    def new_subscription(self, topic: str, name: str | None = None, **more: Any) -> str:
        name = name or f"s-{secrets.token_hex(6)}"
        wanted = {
            "name": f"projects/{PROJECT}/subscriptions/{name}",
            "topic": f"projects/{PROJECT}/topics/{topic}",
            "ack_deadline_seconds": 10,
            **more,
        }
        with self.subscriber() as client:
            client.create_subscription(request=wanted)
        return name

    def with_dead_letters(self, topic: str) -> tuple[str, str]:
        """A subscription that gives a message up after five attempts, and the one that then gets it."""
        dead = self.new_topic()
        policy = {"dead_letter_topic": f"projects/{PROJECT}/topics/{dead}", "max_delivery_attempts": 5}
        return self.new_subscription(topic, dead_letter_policy=policy), self.new_subscription(dead)

    def publish(self, topic: str, values: Sequence[str], *, key: str = "", **attributes: str) -> None:
        path = f"projects/{PROJECT}/topics/{topic}"
        with self.publisher() as client:
            for start in range(0, len(values), 500):
                messages = [
                    {"data": value.encode(), "ordering_key": key, "attributes": attributes}
                    for value in values[start : start + 500]
                ]
                client.publish(topic=path, messages=messages)

    def taken(self, subscription: str, *, at_least: int = 1, seconds: float = 20.0) -> list[Any]:
        """Messages that wait, as many as are expected; they are gone afterwards."""
        from google.api_core.exceptions import DeadlineExceeded

        path, found = f"projects/{PROJECT}/subscriptions/{subscription}", []
        deadline = time.monotonic() + seconds
        with self.subscriber() as client:
            while len(found) < at_least and time.monotonic() < deadline:
                try:
                    some = client.pull(subscription=path, max_messages=1000, timeout=2, retry=None).received_messages
                except DeadlineExceeded:
                    continue
                if some:
                    client.acknowledge(subscription=path, ack_ids=[one.ack_id for one in some])
                found += [one.message for one in some]
        return found

    def is_empty(self, subscription: str, *, seconds: float = 2.0) -> bool:
        """Whether nothing comes, not even what somebody gave back."""
        return not self.taken(subscription, at_least=1, seconds=seconds)
