"""Holds the lease of a pipeline in the run log and renews it while a run works."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ematix_flow.foundation.errors import ConnectionFailed, FlowError, LeaseHeld, LeaseLost, StorageFull
from ematix_flow.run_log.worker import this_worker
from ematix_flow.storage.lease import Lease, unlimited_lease

if TYPE_CHECKING:
    from ematix_flow.run_log.protocol import ClaimStore

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LeaseTerms:
    """A lease's duration and renewal interval in seconds, and the token if it is already held."""

    seconds: float = 120.0
    beat: float = 40.0
    token: str | None = None


def _lost() -> LeaseLost:
    return LeaseLost(
        "this process lost its lease, because it could not renew it in time; another process may run by now",
        hint="flow runs list shows who",
    )


@contextmanager
def hold_lease(run_log: ClaimStore | None, pipeline: str, terms: LeaseTerms | None = None) -> Iterator[Lease]:
    """Hold the pipeline's lease while the block runs; a lease claimed in advance is taken over by its token."""
    token, terms = None, terms or LeaseTerms()
    if run_log is not None:
        token = (_take_over_lease if terms.token else _claim_lease)(run_log, pipeline, terms)
    if run_log is None or token is None:
        yield unlimited_lease()
        return
    every = min(terms.beat, terms.seconds / 3)
    lease = Lease(lambda: run_log.heartbeat(token, terms.seconds), every=every, lost=_lost)
    try:
        with lease.kept():
            yield lease
    finally:
        try:
            run_log.release(token)
        except FlowError as error:  # the lease expires by itself
            _log.warning("%s", error.what)


def _claim_lease(run_log: ClaimStore, pipeline: str, terms: LeaseTerms) -> str | None:
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


def _take_over_lease(run_log: ClaimStore, pipeline: str, terms: LeaseTerms) -> str | None:
    if terms.token is not None and run_log.heartbeat(terms.token, terms.seconds):
        return terms.token
    raise LeaseLost(f"the claim of {pipeline} that this run was given is over", hint="let the scheduler fire it again")
