"""A lease: a right with an end, which a thread renews while its holder works.

The stores differ, so each user of this class provides the function that renews its right: a claim of the run log, a
window of the interval ledger, a lock object of a bucket, a group of dead letters.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ematix_flow.foundation.errors import LeaseLost
from ematix_flow.foundation.redact import mask

_STOP_SECONDS = 5.0
_log = logging.getLogger(__name__)


def boot_seconds() -> float:
    """Return a clock that also advances while the machine is suspended, which is when leases are lost."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


def _lost() -> LeaseLost:
    return LeaseLost("this process did not renew its lease in time; another one may hold it", hint="run it again")


class Lease:
    """A right that was acquired at `since` and is renewed every `every` seconds, of which two renewals may fail.

    `renew` extends it in its store; it returns False if another process holds it by now, and raises if that is unknown.
    `lost` returns the error that `check` raises.
    """

    def __init__(
        self,
        renew: Callable[[], bool],
        *,
        every: float,
        lost: Callable[[], LeaseLost] = _lost,
        since: float | None = None,
    ) -> None:
        self.is_lost = False
        self._renew = renew
        self._lost = lost
        self._every = every
        self._renewed_at = boot_seconds() if since is None else since
        self._guard = threading.Lock()
        self._ended = threading.Event()

    def renew(self) -> bool:
        """Renew it now, unless it is lost; return whether it is held."""
        with self._guard:
            if not self.is_lost:
                requested_at = boot_seconds()
                self.is_lost = not self._renew()
                self._renewed_at = requested_at
            return not self.is_lost

    def check(self) -> None:
        """Raise LeaseLost unless it is certainly held; one that was not renewed for a while is renewed first."""
        is_old = boot_seconds() - self._renewed_at > 2 * self._every
        if self.is_lost or (is_old and not self.renew()):
            raise self._lost()

    def keep(self) -> None:
        """Renew it regularly until it is lost, or until `stop` is called by another thread."""
        while not self._ended.wait(self._every):
            try:
                if not self.renew():
                    return
            except Exception as error:  # the next renewal tries again
                _log.debug("renewing a lease: %s", mask(str(error)))

    def stop(self) -> None:
        """Stop renewing it."""
        self._ended.set()

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Renew it in a thread while the block runs."""
        thread = threading.Thread(target=self.keep, name="flow-lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self.stop()
            thread.join(_STOP_SECONDS)  # a renewal may be in progress


def unlimited_lease() -> Lease:
    """Return a lease that cannot be lost, for a right that ends with the process or that no store grants."""
    return Lease(lambda: True, every=float("inf"))
