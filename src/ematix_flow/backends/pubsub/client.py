"""Clients of Pub/Sub or its emulator, full resource names, and the conversion of deliveries to messages."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timezone
from typing import Any

from ematix_flow.backends.pubsub.errors import translate
from ematix_flow.declare.connections import PubSubConnection
from ematix_flow.foundation.drivers import require_driver
from ematix_flow.foundation.errors import ConfigError
from ematix_flow.spool.receiver import Delivery

SECONDS = 10.0
_EMULATOR = "PUBSUB_EMULATOR_HOST"
_SERVICE = "pubsub.googleapis.com"


def load_pubsub() -> Any:
    """Return google-cloud-pubsub's module, an optional dependency; raise MissingDriver without it."""
    return require_driver("google.pubsub_v1", needed_by="Pub/Sub", package="google-cloud-pubsub", extra="pubsub")


@dataclass(frozen=True)
class PubSubAddress:
    """A project at the service, or at an emulator that requires no login."""

    project: str
    endpoint: str | None
    is_open: bool
    """Whether the endpoint has neither login nor encryption."""

    @classmethod
    def of(cls, connection: PubSubConnection) -> PubSubAddress:
        """Return the address of a connection; without an endpoint, the emulator's environment variable applies."""
        ready = connection.resolved()
        endpoint = ready.endpoint or os.environ.get(_EMULATOR)
        is_open = bool(ready.anonymous_auth) or (not ready.endpoint and endpoint is not None)
        if is_open and not endpoint:
            raise ConfigError(
                f"connection {connection.name!r} has anonymous_auth, and no endpoint that works without a login",
                hint=f'add endpoint = "localhost:8085", or set {_EMULATOR}',
                connection=connection.name,
            )
        plain = endpoint.removeprefix("http://").removeprefix("https://").rstrip("/") if endpoint else None
        return cls(ready.project_id, plain, is_open)

    @property
    def at(self) -> str:
        """Return the service's name for error messages."""
        return f"Pub/Sub at {self.endpoint or _SERVICE}"

    def subscription(self, name: str) -> str:
        """Return the full name of a subscription.

        >>> PubSubAddress("shop", None, False).subscription("orders")
        'projects/shop/subscriptions/orders'
        """
        return name if name.startswith("projects/") else f"projects/{self.project}/subscriptions/{name}"

    def topic(self, name: str) -> str:
        """Return the full name of a topic."""
        return name if name.startswith("projects/") else f"projects/{self.project}/topics/{name}"

    def subscriber(self) -> Any:
        """Return the plain client of subscriptions; threads may share it."""
        return load_pubsub().SubscriberClient(**self._ways("subscriber", "SubscriberGrpcTransport"))

    def publisher(self) -> Any:
        """Return the plain client of topics."""
        return load_pubsub().PublisherClient(**self._ways("publisher", "PublisherGrpcTransport"))

    def sender(self) -> Any:
        """Return the client that sends many messages at once, in the order of their keys."""
        load_pubsub()
        from google.cloud import pubsub_v1

        options = pubsub_v1.types.PublisherOptions(enable_message_ordering=True)
        with self.translated_errors():
            return pubsub_v1.PublisherClient(
                publisher_options=options, **self._ways("publisher", "PublisherGrpcTransport")
            )

    def _ways(self, service: str, transport: str) -> dict[str, Any]:
        if not self.is_open:
            return {"client_options": {"api_endpoint": self.endpoint}} if self.endpoint else {}
        import importlib

        import grpc

        transports = importlib.import_module(f"google.pubsub_v1.services.{service}.transports")
        size = {"grpc.max_receive_message_length": -1, "grpc.max_send_message_length": -1}
        channel = grpc.insecure_channel(str(self.endpoint), options=list(size.items()))
        return {"transport": getattr(transports, transport)(channel=channel)}

    @contextmanager
    def translated_errors(self, place: str = "the subscription") -> Iterator[None]:
        """Raise errors of the client library inside the block as FlowErrors."""
        load_pubsub()
        import grpc
        from google.api_core.exceptions import GoogleAPIError
        from google.auth.exceptions import GoogleAuthError

        try:
            yield
        except (GoogleAPIError, GoogleAuthError, grpc.RpcError, OSError) as exc:
            raise translate(exc, at=self.at, place=place) from exc


def get_subscription(address: PubSubAddress, name: str) -> Any:
    """Return the settings of a subscription; raise MissingTable where it does not exist."""
    with address.translated_errors(f"subscription {name!r}"), address.subscriber() as client:
        return client.get_subscription(subscription=address.subscription(name), timeout=SECONDS, retry=None)


def no_dead_letter_policy(name: str) -> ConfigError:
    """Return the error of a subscription without a dead-letter topic, which would lose rejected messages."""
    return ConfigError(
        f"subscription {name!r} has no dead-letter topic, and rejected messages would be lost",
        hint=f"gcloud pubsub subscriptions update {name} --dead-letter-topic=TOPIC --max-delivery-attempts=5; "
        'or say dlq_store="table" to keep such messages in a table',
    )


def get_topic(address: PubSubAddress, name: str) -> Any:
    """Return the settings of a topic; raise MissingTable where it does not exist."""
    with address.translated_errors(f"topic {name!r}"), address.publisher() as client:
        return client.get_topic(topic=address.topic(name), timeout=SECONDS, retry=None)


def message_of(received: Any) -> Delivery:
    """Return a delivery in the form that all brokers share."""
    message = received.message
    attributes = tuple((name, value.encode()) for name, value in message.attributes.items())
    return Delivery(
        value=message.data,
        tag=received.ack_id,
        key=message.ordering_key.encode() if message.ordering_key else None,
        headers=attributes or None,
        message_id=message.message_id or None,
        timestamp=message.publish_time.ToDatetime(tzinfo=timezone.utc) if message.HasField("publish_time") else None,
    )
