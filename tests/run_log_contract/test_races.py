"""Several processes at once: nothing is granted twice, nothing is lost, and the dead hold nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from ematix_flow.foundation.errors import LeaseLost
from ematix_flow.run_log import Action, RunLog, from_url
from ematix_flow.run_log.worker import this_worker
from tests.full import IS_FULL
from tests.run_log_contract.places import CLOCKS, SHARED, Place, fresh
from tests.run_log_contract.racing import FIRST, HOUR

ROOT = Path(__file__).resolve().parents[2]
SLOTS, INTERVALS, CLAIMS = 200, 20, 10
# One process at a time may have a DuckDB file open, so every single question opens it anew; an object store takes a
# request or more for each. CONTRACT_FULL=1 asks all of them for everything.
FEWER = {} if IS_FULL else {"duckdb": (6, 2, 2)} | dict.fromkeys(("s3", "azureblob", "gcs"), (40, 6, 4))


shared = pytest.mark.parametrize("place", SHARED, indirect=True)


def start(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *words], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip


@shared
def test_of_several_processes_each_slot_action_and_interval_has_exactly_one_taker(place: Place) -> None:
    slots, intervals, claims = FEWER.get(place.store, (SLOTS, INTERVALS, CLAIMS))
    with closing(from_url(place.url)) as log:
        actions = [log.enqueue(Action("run", f"job-{number}")) for number in range(intervals)]
        taken = Counter(_race(place, slots, intervals, claims))
        fences = sorted(int(line.split()[1]) for line in taken if line.startswith("fence"))
        wanted = {f"slot {number}" for number in range(slots)}
        wanted |= {f"action {action_id}" for action_id in actions}
        wanted |= {f"interval {number}" for number in range(intervals)}
        assert {line: count for line, count in taken.items() if count > 1} == {}
        assert {line for line in taken if not line.startswith("fence")} == wanted
        assert fences == list(range(1, len(fences) + 1))
        assert len(log.slots("orders", limit=slots + 1)) == slots
        assert {interval.attempt for interval in log.intervals("orders")} == {1}
        assert log.pending_actions() == []


def _race(place: Place, *numbers: int) -> list[str]:
    """What all racers took, each of them alive until the last has ended."""
    words = ("-m", "tests.run_log_contract.racing", place.url, *map(str, numbers))
    racers = [start(*words) for _ in range(2 if place.store in FEWER else 3)]
    for racer in racers:
        assert _line(racer) == "ready", racer.communicate()[1]
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    taken = [list(iter(lambda racer=racer: _line(racer), "end")) for racer in racers]  # type: ignore[misc]
    said = [racer.communicate()[1] for racer in racers]
    assert {racer.returncode for racer in racers} == {0}, said
    return [line for lines in taken for line in lines]


def _line(racer: subprocess.Popen[str]) -> str:
    assert racer.stdout is not None
    line = racer.stdout.readline()
    return line.strip() if line else "end"


HOLDER = """
import sys, time
from tests.run_log_contract.racing import FIRST, HOUR
from ematix_flow.run_log import from_url
from ematix_flow.run_log.worker import this_worker
log = from_url(sys.argv[1])
claim = log.claim("orders", this_worker(), 3600)
log.take_interval("orders", FIRST, FIRST + HOUR, this_worker(), 3600)
print(claim.token, flush=True)
time.sleep(600)
"""


@shared
def test_what_a_killed_process_held_is_free_at_once_and_its_token_fires_nothing(place: Place) -> None:
    holder = start("-c", HOLDER, place.url)
    assert holder.stdout is not None
    token = holder.stdout.readline().strip()
    with closing(from_url(place.url)) as log:
        assert token, holder.communicate()[1]
        assert not log.claim("orders", this_worker(), 60).acquired
        assert not log.take_interval("orders", FIRST, FIRST + HOUR, this_worker(), 60)
        holder.send_signal(signal.SIGKILL)
        holder.communicate()
        assert log.claim("orders", this_worker(), 60).acquired
        assert log.take_interval("orders", FIRST, FIRST + HOUR, this_worker(), 60)
        assert not log.heartbeat(token, 60)
        with pytest.raises(LeaseLost):
            log.take_slot("orders", "cron:1", "a:1:1", leader=token)


LEADER = """
import os, signal, sys, time
from ematix_flow.foundation.errors import LeaseLost
from ematix_flow.run_log import from_url
from ematix_flow.run_log.worker import this_worker
log = from_url(sys.argv[1])
lead = log.claim("_scheduler", this_worker(), 1)
print(log.take_slot("orders", "cron:1", this_worker(), leader=lead.token), flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
try:
    print(log.take_slot("orders", "cron:2", this_worker(), leader=lead.token))
except LeaseLost:
    print("lost")
"""


@shared
def test_a_leader_that_slept_through_its_lease_fires_nothing_when_it_wakes(place: Place) -> None:
    leader = start("-c", LEADER, place.url)
    assert leader.stdout is not None
    assert leader.stdout.readline() == "True\n", leader.communicate()[1]
    os.waitid(os.P_PID, leader.pid, os.WSTOPPED)
    with closing(from_url(place.url)) as log:
        deadline = time.monotonic() + 20
        while not log.claim("_scheduler", this_worker(), 60).acquired and time.monotonic() < deadline:
            time.sleep(0.1)
        leader.send_signal(signal.SIGCONT)
        said, _ = leader.communicate(timeout=60)
        assert said == "lost\n"
        assert [slot.slot for slot in log.slots("orders")] == ["cron:1"]


@pytest.fixture(params=CLOCKS)
def clocked(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RunLog]:
    """A run log whose store has a clock of its own."""
    log = from_url(fresh(request.param, folder=tmp_path, ask=request.getfixturevalue).url)
    yield log
    log.close()


def test_a_host_whose_clock_is_an_hour_ahead_takes_no_lease_away(
    clocked: RunLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ematix_flow.foundation.clock import now
    from ematix_flow.run_log.sql import dialect

    held = clocked.claim("orders", "elsewhere:1:1", 60)
    clocked.take_interval("orders", FIRST, FIRST + HOUR, "elsewhere:1:1", 60)
    monkeypatch.setattr(dialect, "clock_now", lambda: now() + HOUR)
    assert not clocked.claim("orders", this_worker(), 60).acquired
    assert not clocked.take_interval("orders", FIRST, FIRST + HOUR, this_worker(), 60)
    assert clocked.sweep_expired_leases(now() + HOUR) == []
    assert clocked.take_slot("orders", "cron:1", "elsewhere:1:1", leader=held.token)
