"""Sending to a queue with publisher confirms, with many unconfirmed messages at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ematix_flow.backends.rabbitmq.client import RabbitMQAddress, load_pika
from ematix_flow.backends.rabbitmq.errors import translate
from ematix_flow.foundation.errors import FlowError, MissingTable, RunFailed, Unreachable

_AT_ONCE = 1_000
_BYTES_AT_ONCE = 4 * 1024 * 1024
_SILENCE_SECONDS = 60.0

Outgoing = tuple[bytes, Any]
"""Body and properties."""


class Publisher:
    """A connection whose event loop runs only while a call waits for its result."""

    def __init__(self, address: RabbitMQAddress, queue: str) -> None:
        self._address, self._queue = address, queue
        self._link: Any = None
        self._channel: Any = None
        self._failure: FlowError | None = None
        self._is_ready = self._is_closed = False
        self._sent = 0
        self._open: set[int] = set()

    def __enter__(self) -> Publisher:
        pika = load_pika()
        self._link = pika.SelectConnection(
            self._address.parameters(),
            on_open_callback=self._opened,
            on_open_error_callback=self._not_opened,
            on_close_callback=self._closed,
        )
        self._until(lambda: self._is_ready)
        return self

    def __exit__(self, *_: object) -> None:
        if self._link is not None and self._link.is_open:
            self._link.close()
            self._failure = None
            self._run(lambda: self._is_closed, seconds=5.0)

    def send(self, messages: Iterable[Outgoing]) -> int:
        """Send all messages, wait for the broker's confirm of each, and return their number."""
        count = size = 0
        for body, properties in messages:
            self._channel.basic_publish("", self._queue, body, properties, mandatory=True)
            self._sent += 1
            self._open.add(self._sent)
            count, size = count + 1, size + len(body)
            if len(self._open) >= _AT_ONCE or size >= _BYTES_AT_ONCE:
                self._until(lambda: not self._open)
                size = 0
        self._until(lambda: not self._open)
        return count

    def _until(self, is_done: Callable[[], bool]) -> None:
        if not self._run(is_done, seconds=_SILENCE_SECONDS) and self._failure is None:
            raise Unreachable(
                f"{self._address.at} did not confirm the messages within {_SILENCE_SECONDS:.0f} s",
                hint="look at its memory and disk alarms: rabbitmq-diagnostics alarms",
            )
        if self._failure is not None:
            raise self._failure

    def _run(self, is_done: Callable[[], bool], *, seconds: float) -> bool:
        """Run the event loop until `is_done`, a failure, or the timeout; return whether it is done."""
        self._is_done = is_done
        loop = self._link.ioloop
        if not self._is_over():
            self._is_late = False
            alarm = loop.call_later(seconds, self._late)
            loop.start()
            loop.remove_timeout(alarm)
        return is_done()

    def _is_over(self) -> bool:
        return self._is_done() or self._failure is not None

    def _late(self) -> None:
        self._is_late = True
        self._link.ioloop.stop()

    def _check_progress(self) -> None:
        if self._is_over():
            self._link.ioloop.stop()

    def _fail(self, error: FlowError) -> None:
        self._failure = self._failure or error
        self._link.ioloop.stop()

    def _opened(self, link: Any) -> None:
        link.channel(on_open_callback=self._channel_opened)

    def _channel_opened(self, channel: Any) -> None:
        self._channel = channel
        channel.add_on_close_callback(self._channel_closed)
        channel.add_on_return_callback(self._returned)
        channel.confirm_delivery(self._confirmed, callback=self._ready)

    def _ready(self, _frame: Any) -> None:
        self._is_ready = True
        self._check_progress()

    def _not_opened(self, _link: Any, exc: Any) -> None:
        self._fail(self._translated(exc))

    def _closed(self, _link: Any, exc: Any) -> None:
        self._is_closed = True
        self._fail(self._translated(exc))

    def _channel_closed(self, _channel: Any, exc: Any) -> None:
        self._fail(self._translated(exc))

    def _translated(self, exc: Any) -> FlowError:
        error = exc if isinstance(exc, BaseException) else RuntimeError(str(exc))
        return translate(error, at=self._address.at, queue=self._queue)

    def _returned(self, _channel: Any, method: Any, _properties: Any, _body: bytes) -> None:
        """Record a failure: the broker could not route a message, and confirms such a message, too."""
        self._fail(
            MissingTable(
                f"queue {self._queue!r} is not there at {self._address.at}: {method.reply_text}",
                hint="check its name, or declare it",
            )
        )

    def _confirmed(self, frame: Any) -> None:
        method, pika = frame.method, load_pika()
        if isinstance(method, pika.spec.Basic.Nack):
            self._fail(
                RunFailed(
                    f"{self._address.at} could not take a message", hint="see the log of RabbitMQ; then run again"
                )
            )
            return
        if method.multiple:
            self._open = {tag for tag in self._open if tag > method.delivery_tag}
        else:
            self._open.discard(method.delivery_tag)
        self._check_progress()
