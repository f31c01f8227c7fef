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

from ematix_flow.backends.rabbitmq.client import Address, close, load
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


def check_rejected_are_kept(address: Address, queue: str) -> None:
    """Raise ConfigError for a queue whose rejected messages would be dropped, or that shows no dead-letter exchange."""
    found = declared_exchange(address, queue)
    if found is None:
        found = exchange_by_policy(address, queue)
    if found is None:
        raise ConfigError(
            f"queue {queue!r} at {address.at} has no dead-letter exchange that can be seen, and rejected messages would be lost",
            hint=f"declare it with {_EXCHANGE}, or let the management API of the server tell of its policy; or {_OTHER_WAY}",
        )
    if found and not _is_there(address, found):
        raise ConfigError(
            f"the dead-letter exchange {found!r} of queue {queue!r} is not there at {address.at}, and rejected messages "
            "would be lost",
            hint=f"declare it and bind a queue to it, or {_OTHER_WAY}",
        )


@dataclass
class _Guess:
    """A declaration of an existing queue, corrected step by step by the server's error messages."""

    durable: bool = True
    auto_delete: bool = False
    arguments: dict[str, Any] = field(default_factory=lambda: {_EXCHANGE: f"none-{secrets.token_hex(8)}"})

    def correct(self, told: re.Match[str]) -> None:
        name = told["name"]
        if name in ("durable", "auto_delete"):
            setattr(self, name, told["word"] == "true")
        elif told["value"] is None:
            self.arguments.pop(name, None)
        else:
            self.arguments[name] = _typed(told["value"], told["type"])


def declared_exchange(address: Address, queue: str) -> str | None:
    """Return the dead-letter exchange of the queue's declaration; None when there is none, or the server hides it."""
    pika = load()
    guess, link = _Guess(), address.connect()
    try:
        with address.speaking(queue):
            link.channel().queue_declare(queue, passive=True)  # a missing queue must not be created
            for _ in range(_MOST_ANSWERS):
                try:
                    link.channel().queue_declare(
                        queue, durable=guess.durable, auto_delete=guess.auto_delete, arguments=guess.arguments
                    )
                    return None
                except pika.exceptions.ChannelClosedByBroker as exc:
                    told = _DIFFERS.search(exc.reply_text or "")
                    if told is None:  # this login may not declare it
                        return None
                    if told["name"] == _EXCHANGE:
                        return told["word"] if told["value"] is None else told["value"]
                    guess.correct(told)
        return None
    finally:
        close(link)


def exchange_by_policy(address: Address, queue: str, port: int | None = None) -> str | None:
    """Return the dead-letter exchange of the queue's policy; None without one, or without the management API."""
    wanted = address.parameters()
    scheme, usual = ("https", _MANAGEMENT_PORT_TLS) if wanted.ssl_options else ("http", _MANAGEMENT_PORT)
    place = f"{quote(wanted.virtual_host, safe='')}/{quote(queue, safe='')}"
    login = base64.b64encode(f"{wanted.credentials.username}:{wanted.credentials.password}".encode()).decode()
    asked = urllib.request.Request(  # noqa: S310  the scheme is http or https
        f"{scheme}://{wanted.host}:{port or usual}/api/queues/{place}", headers={"Authorization": f"Basic {login}"}
    )
    with suppress(OSError, ValueError), urllib.request.urlopen(asked, timeout=_SECONDS) as answer:  # noqa: S310
        told = json.load(answer).get("effective_policy_definition") or {}
        found = told.get("dead-letter-exchange") if isinstance(told, dict) else None
        return None if found is None else str(found)
    return None


def _is_there(address: Address, exchange: str) -> bool:
    try:
        with address.channel() as channel:
            channel.exchange_declare(exchange, passive=True)
    except MissingTable:
        return False
    return True


def _typed(value: str, kind: str) -> Any:
    if kind == "bool":
        return value == "true"
    return int(value) if value.lstrip("-").isdigit() and kind != "longstr" else value
