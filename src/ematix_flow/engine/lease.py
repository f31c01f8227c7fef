"""One run of a pipeline at a time: a lease in the run log, kept alive while the run works."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ematix_flow.foundation.errors import ConnectionFailed, FlowError, LeaseHeld, StorageFull
from ematix_flow.runlog.worker import this_worker

if TYPE_CHECKING:
    from ematix_flow.runlog.protocol import RunLog

LEASE_SECONDS = 120
_log = logging.getLogger(__name__)


@contextmanager
def held(run_log: RunLog | None, pipeline: str) -> Iterator[None]:
    """Hold the pipeline's lease while the block runs."""
    token = _claimed(run_log, pipeline) if run_log is not None else None
    if run_log is None or token is None:
        yield
        return
    ended = threading.Event()
    beat = threading.Thread(target=_beat, args=(run_log, token, ended), daemon=True)
    beat.start()
    try:
        yield
    finally:
        ended.set()
        beat.join(timeout=5)
        try:
            run_log.release(token)
        except FlowError as error:  # it runs out by itself
            _log.warning("%s", error.what)


def _claimed(run_log: RunLog, pipeline: str) -> str | None:
    """The token of the lease; None, with a warning, when the run log is out of order: the work matters more."""
    try:
        claim = run_log.claim(pipeline, this_worker(), LEASE_SECONDS)
    except (ConnectionFailed, StorageFull) as error:
        _log.warning("%s; continuing without history", error.what)
        return None
    if not claim.acquired:
        raise LeaseHeld(
            f"{pipeline} is already running ({claim.holder}), until {claim.expires_at:%H:%M:%S} at least",
            hint="wait for it, or look: flow runs list",
        )
    return claim.token


def _beat(run_log: RunLog, token: str, ended: threading.Event) -> None:
    while not ended.wait(LEASE_SECONDS / 3):
        try:
            run_log.heartbeat(token, LEASE_SECONDS)
        except Exception as exc:  # the next beat tries again; the lease outlives two missed ones
            _log.debug("heartbeat: %s", exc)
