"""The interval ledger in use: the planning lock of a pipeline, and the lease of one window."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

from ematix_flow.declare.windows import DataWindow
from ematix_flow.foundation.errors import FlowError, LeaseHeld
from ematix_flow.run_log.protocol import ClaimStore, RunLog
from ematix_flow.run_log.schedule import Interval
from ematix_flow.run_log.worker import this_worker
from ematix_flow.storage.lease import Lease

LEASE_SECONDS = 120.0
_PLANNING_SECONDS = 300.0  # writing many windows to an object store takes long
_PATIENCE_SECONDS = 60.0
_log = logging.getLogger(__name__)


@contextmanager
def planning_lock(run_log: ClaimStore, pipeline: str) -> Iterator[None]:
    """Hold the planning lock of a pipeline during the block, so that no two planned windows overlap."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        claim = run_log.claim(f"{pipeline}#windows", this_worker(), _PLANNING_SECONDS)
        if claim.acquired and claim.token is not None:
            break
        if time.monotonic() > deadline:
            raise LeaseHeld(f"{claim.holder} plans windows of {pipeline}, and does not end", hint="try again")
        time.sleep(0.2)
    try:
        yield
    finally:
        with suppress(FlowError):  # the lease expires by itself
            run_log.release(claim.token)


class IntervalLease:
    """The lease of one window, renewed by a thread until its load has ended."""

    def __init__(self, run_log: RunLog, pipeline: str, window: DataWindow, *, again: str = "") -> None:
        self.window = window
        self.again = again
        """The repetition id if the window was done before; the ledger keeps it as the run id."""
        self._run_log = run_log
        self._key = (pipeline, window.start, window.end, this_worker(), LEASE_SECONDS)
        self._kept = ExitStack()

    def claim(self) -> bool:
        """Claim the window; return False if it is done or held by another worker."""
        if not self._run_log.take_interval(*self._key):
            return False
        self._kept.enter_context(Lease(self._renew, every=LEASE_SECONDS / 3).kept())
        return True

    def done(self, run_id: str) -> None:
        """Record that the window is loaded."""
        self._record(Interval(self.window.start, self.window.end, "done", run_id=run_id, worker_id=this_worker()))

    def failed(self, error: str, run_id: str) -> None:
        """Record that the load failed; another backfill may load the window."""
        interval = Interval(
            self.window.start,
            self.window.end,
            "failed",
            run_id=self.again or run_id,
            error=error,
            worker_id=this_worker(),
        )
        self._record(interval)

    def _record(self, interval: Interval) -> None:
        self._kept.close()
        try:
            self._run_log.record_intervals(self._key[0], [interval])
        except FlowError as error:  # the target has the commit token, so that a second load finds the window loaded
            _log.warning("%s; the window %s stays open in the ledger", error.what, self.window)

    def _renew(self) -> bool:
        is_held = self._run_log.renew_interval(*self._key)
        if not is_held:
            _log.warning("another worker has taken the window %s; only one of both will publish it", self.window)
        return is_held
