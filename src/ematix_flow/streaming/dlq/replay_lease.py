"""The lease on a group of dead letters: renewed while a replay works on it, released when the replay fails."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta

from ematix_flow.foundation.clock import now
from ematix_flow.foundation.errors import FlowError
from ematix_flow.storage.lease import Lease
from ematix_flow.streaming.dlq.table import DeadLetterTable

LEASE_SECONDS = 60.0


class LeasedLetters:
    """A leased group of letters; the moment at which the lease ends also identifies the group."""

    def __init__(self, letters: DeadLetterTable) -> None:
        self._letters = letters
        self.until = _lease_end()

    def renew(self) -> bool:
        """Extend the lease by `LEASE_SECONDS` from now, if the group exists already; return True."""
        longer = _lease_end()
        if self._letters.renew(self.until, longer):
            self.until = longer
        return True

    def release(self) -> None:
        """End the lease now: another replay can take the whole group over at once, parts of which may be published."""
        with suppress(FlowError):
            self._letters.renew(self.until, now())


@contextmanager
def hold_letters(letters: DeadLetterTable) -> Iterator[LeasedLetters]:
    """Yield a lease that a thread renews while the block runs; release it when the block raises."""
    group = LeasedLetters(letters)
    try:
        with Lease(group.renew, every=LEASE_SECONDS / 3).kept():
            yield group
    except BaseException:
        group.release()
        raise


def _lease_end() -> datetime:
    """Return the end of a lease that starts now; random microseconds keep two replays from having the same end."""
    return now() + timedelta(seconds=LEASE_SECONDS, microseconds=random.randrange(1_000_000))  # noqa: S311  not a secret
