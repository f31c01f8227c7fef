"""Keeps a claim alive while its worker works."""

from __future__ import annotations

import logging
import threading
from typing import Protocol

from ematix_flow.foundation.redact import mask

_log = logging.getLogger(__name__)


class KeepsClaims(Protocol):
    """The part of a run log that this needs."""

    def heartbeat(self, claim_token: str, lease_seconds: float) -> bool:
        """Renew a claim; False when the token no longer holds it."""


class HeartbeatThread(threading.Thread):
    """Renews a claim every few seconds; `lost` says that somebody else has it now."""

    def __init__(
        self, run_log: KeepsClaims, claim_token: str, *, lease_seconds: float, interval_seconds: float
    ) -> None:
        super().__init__(name="flow-heartbeat", daemon=True)
        self._run_log = run_log
        self._token = claim_token
        self._lease = lease_seconds
        self._interval = interval_seconds
        self._ended = threading.Event()
        self.lost = False

    def start(self) -> None:
        """Begin to beat; once is enough."""
        if self.ident is None:
            super().start()

    def run(self) -> None:
        """Beat until somebody says stop, or the claim is somebody else's."""
        while not self._ended.wait(self._interval):
            try:
                # A run log of the user's own may answer with nothing at all.
                self.lost = self._run_log.heartbeat(self._token, self._lease) is False
            except Exception as error:  # the next beat tries again; the lease outlives two missed ones
                _log.debug("heartbeat: %s", mask(str(error)))
            if self.lost:
                _log.warning("the claim %s… was lost to somebody else, or ran out", self._token[:8])
                return

    def stop(self, *, timeout: float = 2.0) -> None:
        """No further beat; wait a moment for one that is on its way."""
        self._ended.set()
        if self.is_alive() and threading.current_thread() is not self:
            self.join(timeout)
