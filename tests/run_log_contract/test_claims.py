"""Claims: one holder at a time, tokens that grow, and holders that die."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from datetime import timedelta

from ematix_flow.foundation.clock import now
from ematix_flow.run_log import RunLog
from ematix_flow.run_log.worker import this_worker

ELSEWHERE = "another-host:4711:99"


def ended_worker() -> str:
    """A process of this machine that has just ended."""
    source = "from ematix_flow.run_log.worker import this_worker; print(this_worker())"
    return subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True).stdout.strip()


def test_only_one_worker_holds_a_pipeline(run_log: RunLog) -> None:
    first = run_log.claim("orders", this_worker(), 60)
    second = run_log.claim("orders", ELSEWHERE, 60)
    assert first.acquired
    assert first.token is not None
    assert (second.acquired, second.token, second.holder) == (False, None, this_worker())
    assert second.expires_at == first.expires_at


def test_another_pipeline_is_another_claim(run_log: RunLog) -> None:
    assert run_log.claim("orders", ELSEWHERE, 60).acquired
    assert run_log.claim("customers", ELSEWHERE, 60).acquired


def test_a_released_claim_is_free_and_its_next_token_is_greater(run_log: RunLog) -> None:
    first = run_log.claim("orders", ELSEWHERE, 60)
    run_log.release(first.token or "")
    second = run_log.claim("orders", ELSEWHERE, 60)
    assert second.acquired
    assert first.fence is not None
    assert second.fence == first.fence + 1
    assert first.token != second.token


def test_a_lease_that_is_over_may_be_taken_and_the_old_token_then_does_nothing(run_log: RunLog) -> None:
    stale = run_log.claim("orders", ELSEWHERE, 0)
    fresh = run_log.claim("orders", "third-host:1:1", 60)
    assert fresh.acquired
    assert run_log.heartbeat(stale.token or "", 60) is False
    run_log.release(stale.token or "")
    assert run_log.claim("orders", ELSEWHERE, 60).holder == "third-host:1:1"
    assert run_log.heartbeat(fresh.token or "", 60) is True


def test_a_heartbeat_keeps_a_claim_beyond_its_first_lease(run_log: RunLog) -> None:
    claim = run_log.claim("orders", ELSEWHERE, 0.3)
    assert run_log.heartbeat(claim.token or "", 60)
    time.sleep(0.4)
    assert not run_log.claim("orders", "third-host:1:1", 60).acquired


def test_a_claim_of_a_dead_process_of_this_machine_is_free_at_once(run_log: RunLog) -> None:
    assert run_log.claim("orders", ended_worker(), 3600).acquired
    assert run_log.claim("orders", this_worker(), 60).acquired


def test_a_claim_of_a_living_process_is_not_free(run_log: RunLog) -> None:
    assert run_log.claim("orders", this_worker(), 3600).acquired
    assert not run_log.claim("orders", this_worker(), 60).acquired


def test_whether_a_process_elsewhere_lives_cannot_be_known(run_log: RunLog) -> None:
    assert run_log.claim("orders", "another-host:999999999:1", 3600).acquired
    assert not run_log.claim("orders", this_worker(), 60).acquired


def test_the_sweep_removes_what_is_not_in_use_and_nothing_else(run_log: RunLog) -> None:
    run_log.claim("over", ELSEWHERE, 0)
    run_log.claim("dead", ended_worker(), 3600)
    run_log.claim("held", this_worker(), 3600)
    swept = run_log.sweep_expired_leases(now() + timedelta(seconds=1))
    assert {claim.pipeline for claim in swept} == {"over", "dead"}
    assert run_log.sweep_expired_leases(now()) == []
    assert not run_log.claim("held", ELSEWHERE, 60).acquired


def test_of_many_threads_that_ask_at_once_one_gets_it(run_log: RunLog) -> None:
    got: list[bool] = []
    gate = threading.Barrier(8)

    def ask() -> None:
        gate.wait()
        got.append(run_log.claim("orders", this_worker(), 60).acquired)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(got) == [False] * 7 + [True]
