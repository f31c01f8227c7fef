"""Pub/Sub for notebooks: batches of a subscription as Arrow, and Arrow batches into a topic."""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Iterable
from typing import Any

from ematix_flow.backends.pubsub.client import SECONDS, PubSubAddress, load_pubsub
from ematix_flow.backends.pubsub.receiver import PubSubReceiver
from ematix_flow.backends.pubsub.sink import publish
from ematix_flow.declare.connections import PubSubConnection
from ematix_flow.foundation.errors import FlowError
from ematix_flow.foundation.redact import mask
from ematix_flow.messages.arrow_batches import batch_to_json
from ematix_flow.messages.message_ids import ATTRIBUTE
from ematix_flow.spool.manual_reading import WITHOUT_LIMIT, BatchLimits, QueueBackend

_log = logging.getLogger(__name__)


class PubSubBackend(QueueBackend):
    """One project; `PubSubBackend.open("my-project", endpoint="localhost:8085", anonymous_auth=True)`."""

    queue_kind = "subscription"

    def __init__(self, connection: PubSubConnection, limits: BatchLimits) -> None:
        super().__init__(connection, limits)
        self._address = PubSubAddress.of(connection)
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

    def write_arrow_stream(self, topic: str, batches: Iterable[Any]) -> int:
        """Send every row as a JSON message, wait until the service has each, and return their number."""
        run, number = secrets.token_hex(8), iter(range(1 << 62))
        outgoing = (
            (value, "", {ATTRIBUTE: f"{run}/{next(number)}"}) for batch in batches for value in batch_to_json(batch)
        )
        return publish(self._address, topic, outgoing)

    def nack_pending(self) -> int:
        """Make unacknowledged and undecodable messages available again, and return their number.

        They are delivered again, or dead-lettered after the attempts that the subscription's dead-letter policy allows.
        """
        return self._nack(requeue=True)

    def pending_handler_count(self) -> int:
        """Return the number of messages that are neither acknowledged nor given back."""
        return self._pending_count()

    def close(self) -> None:
        """Close the connection; unacknowledged messages are delivered again."""
        self._ended.set()
        super().close()

    def _connect(self, name: str) -> PubSubReceiver:
        receiver = PubSubReceiver(self._address, name)
        receiver.connect(WITHOUT_LIMIT)
        self._ended = threading.Event()
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
