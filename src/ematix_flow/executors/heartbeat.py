"""A thread that renews the claim of a worker."""

from __future__ import annotations

import logging
import threading
from typing import Protocol

from ematix_flow.storage.lease import Lease

_log = logging.getLogger(__name__)


class KeepsClaims(Protocol):
    """The part of a run log that renews claims."""

    def heartbeat(self, claim_token: str, lease_seconds: float) -> bool:
        """Renew a claim for `lease_seconds`; return False when the token no longer holds it."""


class HeartbeatThread(threading.Thread):
    """A daemon thread that renews a claim periodically; `lost` is True once the claim has expired or moved on."""

    def __init__(
        self, run_log: KeepsClaims, claim_token: str, *, lease_seconds: float, interval_seconds: float
    ) -> None:
        super().__init__(name="flow-heartbeat", daemon=True)
        self._token = claim_token

        def renew() -> bool:
            # A run log that a user wrote may return None, which is not a loss.
            return run_log.heartbeat(claim_token, lease_seconds) is not False

        self._lease = Lease(renew, every=interval_seconds)

    @property
    def lost(self) -> bool:
        """Return whether the claim has expired or moved on."""
        return self._lease.is_lost

    def start(self) -> None:
        """Start the thread; do nothing if it was started before."""
        if self.ident is None:
            super().start()

    def run(self) -> None:
        """Renew the claim until `stop` is called or the claim is lost."""
        self._lease.keep()
        if self.lost:
            _log.warning("the claim %s… was taken by another worker, or expired", self._token[:8])

    def stop(self, *, timeout: float = 2.0) -> None:
        """Stop renewing; wait up to `timeout` seconds for a renewal in progress."""
        self._lease.stop()
        if self.is_alive() and threading.current_thread() is not self:
            self.join(timeout)
