"""Requests of users to streams: stop between two batches."""

from __future__ import annotations

import time
from dataclasses import dataclass

from ematix_flow.engine.streams.standing import Standing, last_life, of_record, running
from ematix_flow.foundation.errors import RunFailed
from ematix_flow.orchestrate import wishes
from ematix_flow.runlog.protocol import RunLog

_LOOK_SECONDS = 0.3
PATIENCE_SECONDS = 120.0


@dataclass(frozen=True)
class Stopped:
    """The result of a stop request: the stream status afterwards, or None if the stream was not running."""

    standing: Standing | None
    how: str = ""


def stop(run_log: RunLog, name: str, *, seconds: float = PATIENCE_SECONDS) -> Stopped:
    """Request a stop and wait until the running batch and the stream have ended; raise a RunFailed after a timeout."""
    record = running(run_log, name)
    if record is None:
        return Stopped(None)
    how = wishes.cancel(run_log, record.run_id).how
    deadline = time.monotonic() + seconds
    while True:
        found = last_life(run_log, record.run_id)
        told = of_record(found) if found is not None else None
        if told is None or not told.is_running:
            return Stopped(told, how)
        if time.monotonic() > deadline:
            raise RunFailed(
                f"{name} was asked to stop and still runs after {seconds:.0f} s: a batch is at work",
                hint=f"it stops when that batch has ended; look again: flow stream status {name}",
            )
        time.sleep(_LOOK_SECONDS)
