"""A consumer of one subscription, for the spool."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from ematix_flow.backends.pubsub.client import SECONDS, PubSubAddress, message_of, no_dead_letter_policy
from ematix_flow.foundation.errors import FlowError, PermissionDenied
from ematix_flow.spool.receiver import Delivery

_SHORTEST_DEADLINE = 10
_EXTENDED_SECONDS = 60
_AT_ONCE = 1_000
_PULL_SECONDS = 30.0
_INBOX = 5_000


class PubSubReceiver:
    """A consumer with a thread of its own for pull requests, whose answers may take long; tags are ack ids.

    The client's own streaming pull is not used: it holds messages of a key back until the one before is acknowledged,
    which happens here only after a commit.
    """

    renew_seconds: float | None = _SHORTEST_DEADLINE / 3
    rejects_at_once = False

    def __init__(self, address: PubSubAddress, name: str) -> None:
        self._address, self._name = address, name
        self._subscription = address.subscription(name)
        self._client: Any = None
        self._puller: threading.Thread | None = None
        self._changed = threading.Condition()
        self._inbox: deque[Any] = deque()
        self._under_way = 0
        self._window = 0
        self._failure: FlowError | None = None
        self._is_closed = self._keeps_nothing = False

    def connect(self, window: int) -> None:
        self._window = window
        with self._translated_errors():
            self._client = self._address.subscriber()
        self._read_subscription()
        self._puller = threading.Thread(target=self._pull, name="flow-pubsub", daemon=True)
        self._puller.start()

    def _read_subscription(self) -> None:
        """Read the acknowledgement deadline and the dead-letter policy; keep the defaults where that is denied."""
        try:
            with self._translated_errors():
                subscription = self._client.get_subscription(
                    subscription=self._subscription, timeout=SECONDS, retry=None
                )
        except PermissionDenied:
            return
        self.renew_seconds = max(
            1.0, min(subscription.ack_deadline_seconds or _SHORTEST_DEADLINE, _EXTENDED_SECONDS) / 3
        )
        self._keeps_nothing = not subscription.dead_letter_policy.dead_letter_topic

    def waiting(self) -> int | None:
        """Return None: the service reports the number only to its monitoring."""
        return None

    def receive(self, limit: int, timeout: float) -> Sequence[Delivery]:
        with self._changed:
            if not self._inbox and self._failure is not None:
                raise self._failure
            if not self._inbox or not limit:
                self._changed.wait(timeout)
            deliveries = [message_of(self._inbox.popleft()) for _ in range(min(limit, len(self._inbox)))]
            if deliveries:
                self._changed.notify_all()
            return deliveries

    def ack(self, tags: Sequence[Any]) -> None:
        for some in _in_parts(tags):
            with self._translated_errors():
                self._client.acknowledge(subscription=self._subscription, ack_ids=some, timeout=SECONDS)
        self._answered(len(tags))

    def nack(self, tags: Sequence[Any], *, requeue: bool) -> None:
        """Make deliveries available again at once; raise ConfigError for a refusal without a dead-letter policy.

        The service counts the attempts, and dead-letters a message after the policy's number of them. Without a policy,
        a refused message would be delivered forever, or be lost.
        """
        if not requeue and self._keeps_nothing:
            raise no_dead_letter_policy(self._name)
        self._delay(tags, 0)
        self._answered(len(tags))

    def extend(self, tags: Sequence[Any]) -> None:
        with self._changed:
            waiting = [received.ack_id for received in self._inbox]
        self._delay([*tags, *waiting], _EXTENDED_SECONDS)

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            unseen = [received.ack_id for received in self._inbox]
            self._inbox.clear()
            self._changed.notify_all()
        if self._client is None:
            return
        with suppress(FlowError):  # they are delivered again after their deadline
            self._delay(unseen, 0)
        self._client.transport.close()  # ends the pending pull request

    def _delay(self, tags: Sequence[Any], seconds: int) -> None:
        for some in _in_parts(tags):
            with self._translated_errors():
                self._client.modify_ack_deadline(
                    subscription=self._subscription, ack_ids=some, ack_deadline_seconds=seconds, timeout=SECONDS
                )

    def _answered(self, number: int) -> None:
        with self._changed:
            self._under_way -= number
            self._changed.notify_all()

    def _pull(self) -> None:
        from google.api_core.exceptions import DeadlineExceeded

        while True:
            room = self._free_slots()
            if not room:
                return
            try:
                with self._translated_errors():
                    try:
                        answer = self._client.pull(
                            subscription=self._subscription, max_messages=room, timeout=_PULL_SECONDS, retry=None
                        )
                    except DeadlineExceeded:  # nothing came
                        continue
            except FlowError as error:
                with self._changed:
                    self._failure = error
                    self._changed.notify_all()
                return
            received = (
                type(answer).pb(answer).received_messages
            )  # without the wrappers, which cost more than the messages
            with self._changed:
                self._under_way += len(received)
                self._inbox.extend(received)
                self._changed.notify_all()

    def _free_slots(self) -> int:
        """Return how many messages may be pulled, once it is at least one; 0 after `close`."""
        with self._changed:
            while not self._is_closed:
                room = self._window - self._under_way if self._window else _INBOX - len(self._inbox)
                if room > 0:
                    return min(room, _AT_ONCE)
                self._changed.wait()
            return 0

    def _translated_errors(self) -> Any:
        return self._address.translated_errors(f"subscription {self._name!r}")


def _in_parts(tags: Sequence[Any]) -> list[list[Any]]:
    """Split tags into requests below the limit of half a megabyte."""
    return [list(tags[start : start + _AT_ONCE]) for start in range(0, len(tags), _AT_ONCE)]
