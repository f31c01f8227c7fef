"""A claim that its worker keeps alive, and one that it loses."""

from __future__ import annotations

import time

import pytest

from ematix_flow.executors.heartbeat import HeartbeatThread
from ematix_flow.run_log.memory import InMemoryRunLog
from tests.executors.sample import eventually


def claimed(run_log: InMemoryRunLog, worker: str, seconds: float) -> str:
    claim = run_log.claim("people", worker, seconds)
    assert claim.token is not None
    return claim.token


def test_a_claim_outlives_its_lease_while_it_is_renewed() -> None:
    run_log = InMemoryRunLog()
    heart = HeartbeatThread(run_log, claimed(run_log, "one", 1), lease_seconds=1, interval_seconds=0.2)
    heart.start()
    time.sleep(2.2)
    assert not run_log.claim("people", "two", 1).acquired
    heart.stop()
    assert not heart.is_alive()
    eventually(lambda: run_log.claim("people", "two", 1).acquired, seconds=5)


def test_a_claim_that_another_worker_has_is_not_renewed() -> None:
    run_log = InMemoryRunLog()
    token = claimed(run_log, "one", 60)
    run_log.release(token)
    claimed(run_log, "two", 60)
    heart = HeartbeatThread(run_log, token, lease_seconds=60, interval_seconds=0.05)
    heart.start()
    eventually(lambda: heart.lost, seconds=5)
    assert run_log.claim("people", "three", 1).holder == "two"
    heart.stop()


def test_a_run_log_that_fails_once_is_asked_again() -> None:
    class Fails:
        beats = 0

        def heartbeat(self, claim_token: str, lease_seconds: float) -> bool:
            self.beats += 1
            if self.beats == 1:
                raise OSError("away")
            return True

    log = Fails()
    heart = HeartbeatThread(log, "token", lease_seconds=60, interval_seconds=0.05)
    heart.start()
    eventually(lambda: log.beats > 2, seconds=5)
    assert not heart.lost
    heart.stop()


def test_one_that_never_started_can_be_stopped() -> None:
    heart = HeartbeatThread(InMemoryRunLog(), "token", lease_seconds=60, interval_seconds=60)
    heart.stop()
    with pytest.raises(RuntimeError):
        heart.join()
