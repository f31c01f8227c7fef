"""Holds the lease of a pipeline in the run log and renews it while a run works."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ematix_flow.foundation.errors import ConnectionFailed, FlowError, LeaseHeld, LeaseLost, StorageFull
from ematix_flow.run_log.worker import this_worker

if TYPE_CHECKING:
    from ematix_flow.run_log.protocol import RunLog


_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LeaseTerms:
    """A lease's duration and renewal interval in seconds, and the token if it is already held."""

    seconds: float = 120.0
    beat: float = 40.0
    token: str | None = None


def _seconds() -> float:
    """Return a clock that also advances while the machine is suspended, which is when leases are lost."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class RunLease:
    """A held lease that can be renewed and checked; without a run log it is always valid."""

    def __init__(
        self, run_log: RunLog | None = None, token: str | None = None, terms: LeaseTerms | None = None
    ) -> None:
        self._run_log, self._token, self._terms = run_log, token, terms or LeaseTerms()
        self._renewed = _seconds()
        self.is_lost = False

    def renew(self) -> bool:
        """Renew the lease; return False when another process holds it by now."""
        if self._run_log is None or self._token is None:
            return True
        requested_at = _seconds()
        self.is_lost = self.is_lost or not self._run_log.heartbeat(self._token, self._terms.seconds)
        if not self.is_lost:
            self._renewed = requested_at
        return not self.is_lost

    def check(self) -> None:
        """Raise LeaseLost unless the lease is still held; one that was not renewed for a while is renewed first."""
        is_old = _seconds() - self._renewed > 2 * min(self._terms.beat, self._terms.seconds / 3)
        if self.is_lost or (is_old and not self.renew()):
            raise LeaseLost(
                "this process lost its lease, because it could not renew it in time; somebody else may run by now",
                hint="flow runs list shows who",
            )


@contextmanager
def hold_lease(run_log: RunLog | None, pipeline: str, terms: LeaseTerms | None = None) -> Iterator[RunLease]:
    """Hold the pipeline's lease while the block runs; a lease claimed in advance is taken over by its token."""
    token, terms = None, terms or LeaseTerms()
    if run_log is not None:
        token = (_take_over_lease if terms.token else _claim_lease)(run_log, pipeline, terms)
    if run_log is None or token is None:
        yield RunLease()
        return
    ended, lease = threading.Event(), RunLease(run_log, token, terms)
    beat = threading.Thread(target=_renew_until, args=(lease, terms, ended), daemon=True)
    beat.start()
    try:
        yield lease
    finally:
        ended.set()
        beat.join(timeout=5)
        try:
            run_log.release(token)
        except FlowError as error:  # the lease expires by itself
            _log.warning("%s", error.what)


def _claim_lease(run_log: RunLog, pipeline: str, terms: LeaseTerms) -> str | None:
    """Return the lease's token; None, with a warning, if the run log is unavailable, which must not stop the run."""
    try:
        claim = run_log.claim(pipeline, this_worker(), terms.seconds)
    except (ConnectionFailed, StorageFull) as error:
        _log.warning("%s; continuing without history", error.what)
        return None
    if not claim.acquired:
        raise LeaseHeld(
            f"{pipeline} is already running ({claim.holder}), until {claim.expires_at:%H:%M:%S} at least",
            hint="wait for it, or look: flow runs list",
        )
    return claim.token


def _take_over_lease(run_log: RunLog, pipeline: str, terms: LeaseTerms) -> str | None:
    if terms.token is not None and run_log.heartbeat(terms.token, terms.seconds):
        return terms.token
    raise LeaseLost(f"the claim of {pipeline} that this run was given is over", hint="let the scheduler fire it again")


def _renew_until(lease: RunLease, terms: LeaseTerms, ended: threading.Event) -> None:
    while not ended.wait(min(terms.beat, terms.seconds / 3)):
        try:
            lease.renew()
        except Exception as exc:  # the next renewal tries again; two may be missed
            _log.debug("heartbeat: %s", exc)
