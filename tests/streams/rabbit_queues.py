"""Queues of a RabbitMQ as publishers and operators see them."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any


@contextmanager
def channel(url: str) -> Iterator[Any]:
    import pika

    link = pika.BlockingConnection(pika.URLParameters(url))
    try:
        yield link.channel()
    finally:
        link.close()


def new_queue(url: str, **arguments: Any) -> str:
    """A durable queue of its own."""
    name = f"q-{secrets.token_hex(6)}"
    with channel(url) as open_channel:
        open_channel.queue_declare(name, durable=True, arguments=arguments or None)
    return name


def with_dead_letters(url: str) -> tuple[str, str]:
    """A queue, and the one that its rejected messages go to."""
    dead = new_queue(url)
    return new_queue(url, **{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}), dead


def publish(url: str, queue: str, values: Sequence[str], *, ids: bool = True, **properties: Any) -> None:
    """Persistent messages."""
    import pika

    with channel(url) as open_channel:
        open_channel.tx_select()
        for value in values:
            named = {"message_id": f"id {value}"} if ids else {}
            told = pika.BasicProperties(delivery_mode=2, **named, **properties)
            open_channel.basic_publish("", queue, value.encode(), told)
        open_channel.tx_commit()


def depth(url: str, queue: str) -> int:
    """Messages that wait; those under way to somebody do not count."""
    with channel(url) as open_channel:
        return int(open_channel.queue_declare(queue, passive=True).method.message_count)


def taken(url: str, queue: str, *, seconds: float = 5.0, at_least: int = 0) -> list[tuple[Any, bytes]]:
    """Everything that waits, properties and bodies; it is gone afterwards."""
    found: list[tuple[Any, bytes]] = []
    deadline = time.monotonic() + seconds
    with channel(url) as open_channel:
        while time.monotonic() < deadline:
            method, properties, body = open_channel.basic_get(queue, auto_ack=True)
            if method is not None:
                found.append((properties, body))
            elif len(found) >= at_least:
                break
            else:
                time.sleep(0.1)
    return found
