"""The lease on a group of dead letters: renewed while a replay works on it, released when the replay fails."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from ematix_flow.foundation.clock import now
from ematix_flow.foundation.errors import FlowError
from ematix_flow.streaming.dlq.table import DeadLetterTable

LEASE_SECONDS = 60.0


@dataclass
class ReplayLease:
    """A leased group of letters; the moment at which the lease ends also identifies the group."""

    letters: DeadLetterTable
    until: datetime
    _lock: threading.Lock

    def renew(self) -> None:
        """Extend the lease by `LEASE_SECONDS` from now."""
        with self._lock:
            longer = _lease_end()
            if self.letters.renew(self.until, longer):
                self.until = longer

    def let_go(self) -> None:
        """End the lease now: another replay can take the whole group over at once, parts of which may be published."""
        with self._lock, suppress(FlowError):
            self.letters.renew(self.until, now())


@contextmanager
def hold_letters(letters: DeadLetterTable) -> Iterator[ReplayLease]:
    """Yield a lease that a thread renews while the block runs; release it when the block raises."""
    lease, ended = ReplayLease(letters, _lease_end(), threading.Lock()), threading.Event()

    def beat() -> None:
        while not ended.wait(LEASE_SECONDS / 3):
            with suppress(FlowError):  # the next renewal tries again; the lease survives two missed ones
                lease.renew()

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield lease
    except BaseException:
        ended.set()
        thread.join(timeout=5)
        lease.let_go()
        raise
    ended.set()
    thread.join(timeout=5)


def _lease_end() -> datetime:
    """Return the end of a lease that starts now; random microseconds keep two replays from having the same end."""
    return now() + timedelta(seconds=LEASE_SECONDS, microseconds=random.randrange(1_000_000))  # noqa: S311  not a secret
