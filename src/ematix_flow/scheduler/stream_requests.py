"""Requests to stop a stream between two micro-batches."""

from __future__ import annotations

import time
from dataclasses import dataclass

from ematix_flow.foundation.errors import RunFailed
from ematix_flow.run_log.protocol import RunLog
from ematix_flow.scheduler import requests
from ematix_flow.streaming.admin.status import StreamStatus, last_attempt, running_attempt, status_of_record

_LOOK_SECONDS = 0.3
PATIENCE_SECONDS = 120.0


@dataclass(frozen=True)
class StopResult:
    """The result of a stop request: the stream status afterwards, or None if the stream was not running."""

    standing: StreamStatus | None
    how: str = ""


def stop_stream(run_log: RunLog, name: str, *, seconds: float = PATIENCE_SECONDS) -> StopResult:
    """Request a stop and wait until the running batch and the stream have ended; raise a RunFailed after a timeout."""
    record = running_attempt(run_log, name)
    if record is None:
        return StopResult(None)
    how = requests.cancel_run(run_log, record.run_id).how
    deadline = time.monotonic() + seconds
    while True:
        last = last_attempt(run_log, record.run_id)
        status = status_of_record(last) if last is not None else None
        if status is None or not status.is_running:
            return StopResult(status, how)
        if time.monotonic() > deadline:
            raise RunFailed(
                f"{name} was asked to stop and still runs after {seconds:.0f} s: a batch is at work",
                hint=f"it stops when that batch has ended; look again: flow stream status {name}",
            )
        time.sleep(_LOOK_SECONDS)
