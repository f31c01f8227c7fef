"""The barrier between micro-batches: a stop waits for the one at work, and no other begins."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Stopping(Exception):
    """A micro-batch was planned while the stream stops; the next start reads it again."""


class BatchBarrier:
    """A lock around every micro-batch; open while the stream runs."""

    def __init__(self) -> None:
        self._working = threading.Lock()
        self.closing = threading.Event()
        self.has_refused = False
        """Whether a micro-batch was refused, which ends its query with an error that is no failure."""

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Hold the lock for one micro-batch; raise Stopping when the stream stops."""
        with self._working:
            if self.closing.is_set():
                self.has_refused = True
                raise Stopping
            yield

    def close(self) -> None:
        """Wait for the current micro-batch, and let no other begin."""
        self.closing.set()
        with self._working:
            pass
