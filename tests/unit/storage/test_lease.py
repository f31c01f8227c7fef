"""A lease: renewed while its holder works, renewed before it is relied on after a silence, and lost once."""

from __future__ import annotations

import threading

import pytest

from ematix_flow.foundation.errors import LeaseLost, Unreachable
from ematix_flow.storage.lease import Lease, unlimited_lease


def test_a_lease_is_renewed_while_the_block_runs_and_not_afterwards() -> None:
    renewals = threading.Semaphore(0)

    def renew() -> bool:
        renewals.release()
        return True

    with Lease(renew, every=0.01).kept():
        assert all(renewals.acquire(timeout=10) for _ in range(3))
    while renewals.acquire(blocking=False):
        pass
    assert not renewals.acquire(timeout=0.1)


def test_a_renewal_that_fails_is_repeated() -> None:
    outcomes = [Unreachable("away"), Unreachable("away"), True]
    renewed = threading.Event()

    def renew() -> bool:
        outcome = outcomes.pop(0) if outcomes else True
        if isinstance(outcome, Exception):
            raise outcome
        renewed.set()
        return outcome

    lease = Lease(renew, every=0.01)
    with lease.kept():
        assert renewed.wait(10)
    lease.check()


def test_a_lost_lease_is_not_renewed_again() -> None:
    renewals: list[int] = []

    def renew() -> bool:
        renewals.append(1)
        return False

    lease = Lease(renew, every=0.01)
    lease.keep()
    for _ in range(2):
        with pytest.raises(LeaseLost):
            lease.check()
    assert (len(renewals), lease.is_lost) == (1, True)


@pytest.mark.parametrize("is_still_ours", [True, False])
def test_after_a_silence_the_store_is_asked_before_the_lease_is_relied_on(is_still_ours: bool) -> None:
    renewals: list[int] = []

    def renew() -> bool:
        renewals.append(1)
        return is_still_ours

    lease = Lease(renew, every=10, lost=lambda: LeaseLost("another run has it"), since=0.0)
    if is_still_ours:
        lease.check()
        lease.check()
    else:
        with pytest.raises(LeaseLost, match="another run has it"):
            lease.check()
    assert len(renewals) == 1


def test_a_lease_of_no_store_is_never_lost() -> None:
    lease = unlimited_lease()
    lease.check()
    assert not lease.is_lost
