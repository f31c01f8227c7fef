"""Restarts of a stream after transient errors, with growing pauses; other errors are raised at once."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ematix_flow.declare.streams.spec import Restarts
from ematix_flow.foundation.errors import ConnectionFailed, FlowError, PartialFailure, RunFailed, StorageFull
from ematix_flow.foundation.redact import mask

if TYPE_CHECKING:
    from ematix_flow.streaming.runtime.run_history import StreamRunHistory

_log = logging.getLogger(__name__)


def is_transient(error: FlowError) -> bool:
    """Return whether a retry can help: a server was unreachable, a disk full, a query dead, or a target left behind."""
    return isinstance(error, (ConnectionFailed, StorageFull, RunFailed, PartialFailure))


def run_with_restarts(
    work: Callable[[], None], policy: Restarts, *, stop: threading.Event, history: StreamRunHistory
) -> int:
    """Run the work until it ends by itself or `stop` is set; return the number of restarts."""
    in_a_row = restarts = 0
    while True:
        began = time.monotonic()
        try:
            work()
            return restarts
        except FlowError as error:
            if not policy.on_error or not is_transient(error) or stop.is_set():
                raise
            in_a_row = 0 if time.monotonic() - began > policy.reset_after_secs else in_a_row
            if policy.max_restarts is not None and in_a_row >= policy.max_restarts:
                raise
            pause = backoff_seconds(in_a_row, policy)
            _log.warning("%s; trying again in %.1f s", mask(error.what), pause)
            in_a_row, restarts = in_a_row + 1, restarts + 1
            history.restarted(error, restarts)
            stop.wait(pause)
            if stop.is_set():
                return restarts


def backoff_seconds(in_a_row: int, policy: Restarts) -> float:
    """Return the pause in seconds: doubled each time up to the maximum, plus up to a tenth so that retries spread."""
    grown: float = min(policy.initial_backoff_ms * 2 ** min(in_a_row, 30), policy.max_backoff_ms)
    return grown / 1000 * (1 + random.random() / 10)  # noqa: S311  not a secret
