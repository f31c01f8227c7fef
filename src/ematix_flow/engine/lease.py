"""One run of a pipeline at a time: a lease in the run log, kept alive while the run works."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ematix_flow.foundation.errors import ConnectionFailed, FlowError, LeaseHeld, LeaseLost, StorageFull
from ematix_flow.runlog.worker import this_worker

if TYPE_CHECKING:
    from ematix_flow.runlog.protocol import RunLog


_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Terms:
    """How long a lease outlives its last renewal, how often it is renewed, and the token of one that is held already."""

    seconds: float = 120.0
    beat: float = 40.0
    token: str | None = None


@contextmanager
def held(run_log: RunLog | None, pipeline: str, terms: Terms | None = None) -> Iterator[None]:
    """Hold the pipeline's lease while the block runs; a token of somebody who claimed it before is taken over."""
    token, terms = None, terms or Terms()
    if run_log is not None:
        token = (_taken_over if terms.token else _claimed)(run_log, pipeline, terms)
    if run_log is None or token is None:
        yield
        return
    ended = threading.Event()
    beat = threading.Thread(target=_beat, args=(run_log, token, terms, ended), daemon=True)
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


def _claimed(run_log: RunLog, pipeline: str, terms: Terms) -> str | None:
    """The token of the lease; None, with a warning, when the run log is out of order: the work matters more."""
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


def _taken_over(run_log: RunLog, pipeline: str, terms: Terms) -> str | None:
    if terms.token is not None and run_log.heartbeat(terms.token, terms.seconds):
        return terms.token
    raise LeaseLost(f"the claim of {pipeline} that this run was given is over", hint="let the scheduler fire it again")


def _beat(run_log: RunLog, token: str, terms: Terms, ended: threading.Event) -> None:
    while not ended.wait(min(terms.beat, terms.seconds / 3)):
        try:
            run_log.heartbeat(token, terms.seconds)
        except Exception as exc:  # the next beat tries again; the lease outlives two missed ones
            _log.debug("heartbeat: %s", exc)
