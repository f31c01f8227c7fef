"""A group of dead letters in one process's hands: kept alive while it works, and let go when it fails."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from ematix_flow.engine.streams.letters import Letters
from ematix_flow.foundation.clock import now
from ematix_flow.foundation.errors import FlowError

LEASE_SECONDS = 60.0


@dataclass
class Lease:
    """A group in this process's hands; the moment at which it ends is also its name."""

    letters: Letters
    until: datetime
    _lock: threading.Lock

    def renew(self) -> None:
        """For longer."""
        with self._lock:
            longer = _end()
            if self.letters.renew(self.until, longer):
                self.until = longer

    def let_go(self) -> None:
        """Others may have it at once, as the group that it is: parts of it may be published."""
        with self._lock, suppress(FlowError):
            self.letters.renew(self.until, now())


@contextmanager
def holding(letters: Letters) -> Iterator[Lease]:
    """Keep what is leased inside alive while the block works."""
    lease, ended = Lease(letters, _end(), threading.Lock()), threading.Event()

    def beat() -> None:
        while not ended.wait(LEASE_SECONDS / 3):
            with suppress(FlowError):  # the next beat tries again; the lease outlives two missed ones
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


def _end() -> datetime:
    """In a minute or so: no two replays end in the same microsecond."""
    return now() + timedelta(seconds=LEASE_SECONDS, microseconds=random.randrange(1_000_000))  # noqa: S311  not a secret
