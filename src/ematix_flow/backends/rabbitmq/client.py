"""Connections to RabbitMQ, their parameters, and the conversion of deliveries to messages."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from ematix_flow.backends.rabbitmq.errors import translate
from ematix_flow.declare.connections import RabbitMQConnection, urls
from ematix_flow.foundation.drivers import require_driver
from ematix_flow.foundation.errors import ConfigError
from ematix_flow.foundation.redact import remember_url_secrets
from ematix_flow.messages.message_ids import KEY
from ematix_flow.spool.receiver import Delivery, Headers
from ematix_flow.spool.source import plain_name

_SECONDS = 5.0
_HEARTBEAT_SECONDS = 60
_BLOCKED_SECONDS = 300.0
_NO_SECONDS = 100_000_000_000


def load_pika() -> Any:
    """Return pika, an optional dependency; raise MissingDriver without it."""
    module = require_driver("pika", needed_by="RabbitMQ", package="pika", extra="rabbitmq")
    log = logging.getLogger("pika")
    if log.level == logging.NOTSET:  # pika logs a traceback for each refusal that we raise
        log.setLevel(logging.CRITICAL)
    return module


@dataclass(frozen=True)
class RabbitMQAddress:
    """A server, and the client's name there."""

    url: str
    at: str
    """The server in error messages: `RabbitMQ at host:port`."""
    name: str
    heartbeat: int = _HEARTBEAT_SECONDS

    def __repr__(self) -> str:
        return f"Address({self.at})"

    @classmethod
    def of(cls, connection: RabbitMQConnection, name: str, *, heartbeat: int = _HEARTBEAT_SECONDS) -> RabbitMQAddress:
        """Return the address of a connection, with its references resolved."""
        url = connection.resolved().amqp_url
        parts = urls.split(url)
        port = parts.port or ("5671" if parts.scheme == "amqps" else "5672")
        return cls(url, f"RabbitMQ at {parts.host}:{port}", plain_name(f"ematix-flow {name}"), heartbeat)

    def parameters(self) -> Any:
        """Return pika's parameters; a heartbeat in the url is kept, timeouts and connection attempts are overridden."""
        pika = load_pika()
        remember_url_secrets(self.url)
        try:
            wanted = pika.URLParameters(self.url)
        except (ValueError, TypeError, KeyError) as exc:
            raise ConfigError(
                f"amqp_url of {self.at} cannot be read", hint="see the documentation of amqp URLs"
            ) from exc
        if "heartbeat=" not in self.url:
            wanted.heartbeat = self.heartbeat
        wanted.connection_attempts = 1  # callers have a backoff of their own
        wanted.socket_timeout = wanted.stack_timeout = _SECONDS
        wanted.blocked_connection_timeout = _BLOCKED_SECONDS
        wanted.client_properties = {"connection_name": self.name}
        return wanted

    def connect(self) -> Any:
        """Return a connection for one thread."""
        pika = load_pika()
        wanted = self.parameters()
        with self.translated_errors():
            return pika.BlockingConnection(wanted)

    @contextmanager
    def translated_errors(self, queue: str | None = None) -> Iterator[None]:
        """Raise errors of pika inside the block as FlowErrors."""
        pika = load_pika()
        try:
            yield
        except (pika.exceptions.AMQPError, OSError) as exc:
            raise translate(exc, at=self.at, queue=queue) from exc

    @contextmanager
    def channel(self, queue: str | None = None) -> Iterator[Any]:
        """Yield a channel on a connection that is closed after the block."""
        link = self.connect()
        try:
            with self.translated_errors(queue):
                yield link.channel()
        finally:
            close(link)


def queue_depth(address: RabbitMQAddress, queue: str) -> int:
    """Return how many messages wait in a queue; raise MissingTable where it does not exist."""
    with address.channel(queue) as channel:
        return int(channel.queue_declare(queue, passive=True).method.message_count)


def close(link: Any) -> None:
    """Close a connection, whatever state it is in."""
    pika = load_pika()
    with suppress(pika.exceptions.AMQPError, OSError):
        if link.is_open:
            link.close()


def message_of(method: Any, properties: Any, body: bytes) -> Delivery:
    """Return a delivery in the form that all brokers share; its key is our sender's header, else the routing key."""
    headers = dict(properties.headers or {})
    key = headers.pop(KEY, None)
    if key is None:
        key = method.routing_key or None
    return Delivery(
        value=body,
        tag=method.delivery_tag,
        key=as_bytes(key),
        headers=_headers(headers),
        message_id=properties.message_id or None,
        timestamp=_moment(properties.timestamp),
    )


def _moment(value: Any) -> datetime | None:
    """Return the publisher's timestamp; the protocol has seconds, some publishers write milliseconds or nonsense."""
    if not isinstance(value, (int, float)):
        return None
    try:
        return datetime.fromtimestamp(value / 1000 if value > _NO_SECONDS else value, timezone.utc)
    except (OverflowError, ValueError, OSError):
        return None


def _headers(headers: dict[str, Any]) -> Headers | None:
    return tuple((str(name), as_bytes(value)) for name, value in headers.items()) or None


def as_bytes(value: Any) -> bytes | None:
    """Return a header's value: text as UTF-8, bytes unchanged, everything else as JSON."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    return value.encode() if isinstance(value, str) else json.dumps(value, default=str).encode()
