"""Check that a queue dead-letters rejected messages.

AMQP has no query for that, but the server refuses a differing declaration and reports the difference. A dead-letter
exchange set by a policy is visible only in the management API, where that answers.
"""

from __future__ import annotations

import base64
import json
import re
import secrets
import urllib.request
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from ematix_flow.backends.rabbitmq.client import RabbitMQAddress, close, load_pika
from ematix_flow.foundation.errors import ConfigError, MissingTable

_EXCHANGE = "x-dead-letter-exchange"
_DIFFERS = re.compile(
    r"inequivalent arg '(?P<name>[^']+)'.* but current is "
    r"(?:none|the value '(?P<value>.*)' of type '(?P<type>\w+)'|'(?P<word>.*)')\s*$",
    re.DOTALL,
)
_OTHER_WAY = 'say dlq_store="table" to keep such messages in a table'
_MOST_ANSWERS = 20
_SECONDS = 2.0
_MANAGEMENT_PORT, _MANAGEMENT_PORT_TLS = 15672, 15671


def check_dead_lettering(address: RabbitMQAddress, queue: str) -> None:
    """Raise ConfigError for a queue whose rejected messages would be dropped, or that shows no dead-letter exchange."""
    exchange = declared_exchange(address, queue)
    if exchange is None:
        exchange = exchange_by_policy(address, queue)
    if exchange is None:
        raise ConfigError(
            f"queue {queue!r} at {address.at} has no dead-letter exchange that can be seen, and rejected messages would be lost",
            hint=f"declare it with {_EXCHANGE}, or let the management API of the server tell of its policy; or {_OTHER_WAY}",
        )
    if exchange and not _exchange_exists(address, exchange):
        raise ConfigError(
            f"the dead-letter exchange {exchange!r} of queue {queue!r} is not there at {address.at}, and rejected messages "
            "would be lost",
            hint=f"declare it and bind a queue to it, or {_OTHER_WAY}",
        )


@dataclass
class _QueueDeclaration:
    """A declaration of an existing queue, corrected step by step by the server's error messages."""

    durable: bool = True
    auto_delete: bool = False
    arguments: dict[str, Any] = field(default_factory=lambda: {_EXCHANGE: f"none-{secrets.token_hex(8)}"})

    def correct(self, match: re.Match[str]) -> None:
        name = match["name"]
        if name in ("durable", "auto_delete"):
            setattr(self, name, match["word"] == "true")
        elif match["value"] is None:
            self.arguments.pop(name, None)
        else:
            self.arguments[name] = _typed_argument(match["value"], match["type"])


def declared_exchange(address: RabbitMQAddress, queue: str) -> str | None:
    """Return the dead-letter exchange of the queue's declaration; None when there is none, or the server hides it."""
    pika = load_pika()
    guess, link = _QueueDeclaration(), address.connect()
    try:
        with address.translated_errors(queue):
            link.channel().queue_declare(queue, passive=True)  # a missing queue must not be created
            for _ in range(_MOST_ANSWERS):
                try:
                    link.channel().queue_declare(
                        queue, durable=guess.durable, auto_delete=guess.auto_delete, arguments=guess.arguments
                    )
                    return None
                except pika.exceptions.ChannelClosedByBroker as exc:
                    match = _DIFFERS.search(exc.reply_text or "")
                    if match is None:  # this login may not declare it
                        return None
                    if match["name"] == _EXCHANGE:
                        return match["word"] if match["value"] is None else match["value"]
                    guess.correct(match)
        return None
    finally:
        close(link)


def exchange_by_policy(address: RabbitMQAddress, queue: str, port: int | None = None) -> str | None:
    """Return the dead-letter exchange of the queue's policy; None without one, or without the management API."""
    wanted = address.parameters()
    scheme, usual = ("https", _MANAGEMENT_PORT_TLS) if wanted.ssl_options else ("http", _MANAGEMENT_PORT)
    place = f"{quote(wanted.virtual_host, safe='')}/{quote(queue, safe='')}"
    login = base64.b64encode(f"{wanted.credentials.username}:{wanted.credentials.password}".encode()).decode()
    request = urllib.request.Request(  # noqa: S310  the scheme is http or https
        f"{scheme}://{wanted.host}:{port or usual}/api/queues/{place}", headers={"Authorization": f"Basic {login}"}
    )
    with suppress(OSError, ValueError), urllib.request.urlopen(request, timeout=_SECONDS) as answer:  # noqa: S310
        policy = json.load(answer).get("effective_policy_definition") or {}
        exchange = policy.get("dead-letter-exchange") if isinstance(policy, dict) else None
        return None if exchange is None else str(exchange)
    return None


def _exchange_exists(address: RabbitMQAddress, exchange: str) -> bool:
    try:
        with address.channel() as channel:
            channel.exchange_declare(exchange, passive=True)
    except MissingTable:
        return False
    return True


def _typed_argument(value: str, kind: str) -> Any:
    if kind == "bool":
        return value == "true"
    return int(value) if value.lstrip("-").isdigit() and kind != "longstr" else value
