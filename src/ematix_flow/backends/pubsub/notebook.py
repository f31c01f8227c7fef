"""Pub/Sub for notebooks: batches of a subscription as Arrow, and Arrow batches into a topic."""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Iterable, Iterator
from typing import Any

from ematix_flow.backends.pubsub.client import SECONDS, PubSubAddress, load_pubsub
from ematix_flow.backends.pubsub.receiver import PubSubReceiver
from ematix_flow.backends.pubsub.sink import publish
from ematix_flow.declare.connections import PubSubConnection
from ematix_flow.foundation.errors import DeclarationError, FlowError
from ematix_flow.foundation.redact import mask
from ematix_flow.messages.arrow_batches import as_batch_iterator, batch_to_json
from ematix_flow.messages.message_ids import ATTRIBUTE
from ematix_flow.spool.manual_reading import BatchLimits, MessageBatches

_log = logging.getLogger(__name__)
_WITHOUT_LIMIT = 0


class PubSubBackend:
    """One project; `PubSubBackend.open("my-project", endpoint="localhost:8085", anonymous_auth=True)`."""

    def __init__(self, connection: PubSubConnection, pace: BatchLimits) -> None:
        self._connection, self._pace = connection, pace
        self._address = PubSubAddress.of(connection)
        self._receiver: PubSubReceiver | None = None
        self._name: str | None = None
        self._pending: list[Any] = []
        self._undecoded: list[Any] = []
        self._lock = threading.Lock()
        self._ended = threading.Event()

    @classmethod
    def open(
        cls,
        project_id: str,
        *,
        endpoint: str | None = None,
        anonymous_auth: bool = False,
        batch_size: int | None = None,
        batch_bytes: int | None = None,
        idle_timeout_ms: int | None = None,
    ) -> PubSubBackend:
        """Return the project with this name, without connecting; `ping()` does that."""
        load_pubsub()
        connection = PubSubConnection(
            "notebook", project_id=project_id, endpoint=endpoint, anonymous_auth=anonymous_auth
        )
        return cls(connection, BatchLimits.of(batch_size, batch_bytes, idle_timeout_ms))

    def ping(self) -> bool:
        """Return True when the service answers and accepts this login; raise a FlowError otherwise."""
        with self._address.translated_errors("the project"), self._address.publisher() as client:
            request = {"project": f"projects/{self._address.project}", "page_size": 1}
            client.list_topics(request=request, timeout=SECONDS, retry=None)
        return True

    @as_batch_iterator
    def iter_arrow_stream(self, query: str) -> Iterator[Any]:
        """Yield batches of JSON messages of a subscription; end when nothing has come for `idle_timeout_ms`.

        Messages of returned batches are withheld from other consumers until `commit_offsets()` or `nack_pending()`.
        Messages that cannot be decoded wait for the latter alone, so that no unseen message is acknowledged.
        """
        gathering = MessageBatches(self._consumer(query), self._pace, query)
        for messages in gathering:
            tags = [message.tag for message in messages]
            with self._lock:
                self._undecoded += tags
            batch = gathering.decoded(messages)
            with self._lock:
                del self._undecoded[-len(tags) :]
                self._pending += tags
            yield batch

    def read_arrow_stream(self, query: str) -> list[Any]:
        """Return the same batches as one list."""
        return list(self.iter_arrow_stream(query))

    def write_arrow_stream(self, topic: str, batches: Iterable[Any]) -> int:
        """Send every row as a JSON message, wait until the service has each, and return their number."""
        run, number = secrets.token_hex(8), iter(range(1 << 62))
        outgoing = (
            (value, "", {ATTRIBUTE: f"{run}/{next(number)}"}) for batch in batches for value in batch_to_json(batch)
        )
        return publish(self._address, topic, outgoing)

    def commit_offsets(self) -> None:
        """Acknowledge every message of the batches returned so far."""
        with self._lock:
            tags, self._pending = self._pending, []
        if self._receiver is not None and tags:
            self._receiver.ack(tags)

    def nack_pending(self) -> int:
        """Make unacknowledged and undecodable messages available again, and return their number.

        They are delivered again, or dead-lettered after the attempts that the subscription's dead-letter policy allows.
        """
        with self._lock:
            tags, self._pending, self._undecoded = self._pending + self._undecoded, [], []
        if self._receiver is not None and tags:
            self._receiver.nack(tags, requeue=True)
        return len(tags)

    def pending_handler_count(self) -> int:
        """Return the number of messages that are neither acknowledged nor given back."""
        return len(self._pending) + len(self._undecoded)

    def close(self) -> None:
        """Close the connection; unacknowledged messages are delivered again."""
        self._ended.set()
        if self._receiver is not None:
            self._receiver.close()
        self._receiver, self._name, self._pending, self._undecoded = None, None, [], []

    def __enter__(self) -> PubSubBackend:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"PubSubBackend({self._connection!r})"

    def _consumer(self, name: str) -> PubSubReceiver:
        if self._receiver is not None and self._name == name:
            return self._receiver
        if waiting := self.pending_handler_count():
            raise DeclarationError(
                f"{waiting} message(s) of {self._name!r} wait for an answer",
                hint="commit_offsets() or nack_pending() first, then read another subscription",
            )
        self.close()
        receiver = PubSubReceiver(self._address, name)
        receiver.connect(_WITHOUT_LIMIT)
        self._receiver, self._name, self._ended = receiver, name, threading.Event()
        threading.Thread(
            target=self._extend_until, args=(receiver, self._ended), name="flow-leases", daemon=True
        ).start()
        return receiver

    def _extend_until(self, receiver: PubSubReceiver, ended: threading.Event) -> None:
        """Extend the deadlines of pending messages until `ended`: a user may take long between two batches."""
        is_failing = False
        while not ended.wait(receiver.renew_seconds):
            with self._lock:
                tags = self._pending + self._undecoded
            try:
                receiver.extend(tags)
                is_failing = False
            except FlowError as error:  # the next turn may succeed
                if not is_failing and not ended.is_set():
                    _log.warning(
                        "the deadlines of %d message(s) cannot be extended, they may be delivered again: %s",
                        len(tags), mask(error.what),
                    )  # fmt: skip
                is_failing = True
