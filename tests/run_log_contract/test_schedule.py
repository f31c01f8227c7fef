"""Slots, pauses and intervals: each granted once, in every kind of run log."""

from __future__ import annotations

import time
from datetime import datetime, timedelta, timezone

import pytest

from ematix_flow.foundation.errors import LeaseLost
from ematix_flow.run_log import Interval, RunLog, RunRecord
from ematix_flow.run_log.worker import this_worker

DAY = timedelta(days=1)
FIRST = datetime(2026, 11, 1, tzinfo=timezone.utc)
ELSEWHERE = "another-host:4711:99"


def test_a_slot_is_fired_once_and_for_all(run_log: RunLog) -> None:
    assert run_log.take_slot("orders", "cron:2026-11-16T03:00:00Z", "a:1:1")
    assert not run_log.take_slot("orders", "cron:2026-11-16T03:00:00Z", "b:1:1")
    assert not run_log.take_slot("orders", "cron:2026-11-16T03:00:00Z", "a:1:1")
    assert run_log.take_slot("customers", "cron:2026-11-16T03:00:00Z", "b:1:1")


def test_slots_are_listed_the_latest_first_with_who_fired_them(run_log: RunLog) -> None:
    fired = ["cron:2026-11-16T03:00:00Z", "cron:2026-11-16T03:01:00Z", f"after:{'x' * 40},{'y' * 400}"]
    for slot in fired:
        assert run_log.take_slot("orders", slot, "a:1:1")
    assert [found.slot for found in run_log.slots("orders")] == fired[::-1]
    newest = run_log.slots("orders", limit=1)
    assert [(found.slot, found.worker_id) for found in newest] == [(fired[2], "a:1:1")]
    assert run_log.slots("nobody") == []


def test_two_long_slots_with_the_same_beginning_are_two_slots(run_log: RunLog) -> None:
    assert run_log.take_slot("orders", "after:" + "x" * 500 + "1", "a:1:1")
    assert run_log.take_slot("orders", "after:" + "x" * 500 + "2", "a:1:1")


def test_the_last_slot_of_every_pipeline_comes_in_one_answer_by_kind(run_log: RunLog) -> None:
    run_log.take_slot("orders", "cron:2026-11-16T03:00:00Z", "a:1:1")
    run_log.take_slot("orders", "cron:2026-11-16T03:01:00Z", "b:1:1")
    run_log.take_slot("orders", "action:4711", "a:1:1")
    run_log.take_slot("häufig/täglich.v2", "cron:2026-11-16T00:00:00Z", "a:1:1")
    last = run_log.last_slots()
    assert {name: slot.slot for name, slot in last.items()} == {
        "orders": "cron:2026-11-16T03:01:00Z",
        "häufig/täglich.v2": "cron:2026-11-16T00:00:00Z",
    }
    assert last["orders"].worker_id == "b:1:1"
    assert {name: slot.slot for name, slot in run_log.last_slots("action").items()} == {"orders": "action:4711"}


def test_a_leader_fires_while_its_lease_holds(run_log: RunLog) -> None:
    lead = run_log.claim("_scheduler", this_worker(), 60)
    assert run_log.take_slot("orders", "cron:1", this_worker(), leader=lead.token)
    assert not run_log.take_slot("orders", "cron:1", this_worker(), leader=lead.token)


@pytest.mark.parametrize("gone", ["over", "taken", "released", "unknown"])
def test_a_leader_whose_lease_is_gone_fires_nothing(run_log: RunLog, gone: str) -> None:
    token = run_log.claim("_scheduler", ELSEWHERE, 0.2 if gone in ("over", "taken") else 60).token or ""
    if gone in ("over", "taken"):
        time.sleep(0.3)
    if gone == "taken":
        assert run_log.claim("_scheduler", this_worker(), 60).acquired
    if gone == "released":
        run_log.release(token)
    with pytest.raises(LeaseLost):
        run_log.take_slot("orders", "cron:1", ELSEWHERE, leader=token if gone != "unknown" else "99-nobody")
    assert run_log.slots("orders") == []
    assert run_log.last_slots() == {}
    assert run_log.take_slot("orders", "cron:1", this_worker())


def test_a_pause_tells_since_when_and_by_whom_until_it_ends(run_log: RunLog) -> None:
    run_log.set_paused("orders", True, "ana")
    run_log.set_paused("orders", True, "ben")
    run_log.set_paused("customers", True, "ben")
    paused = run_log.paused()
    assert {name: pause.by for name, pause in paused.items()} == {"orders": "ana", "customers": "ben"}
    assert abs((paused["orders"].at - datetime.now(timezone.utc)).total_seconds()) < 60
    run_log.set_paused("orders", False, "ana")
    run_log.set_paused("nobody", False, "ana")
    assert set(run_log.paused()) == {"customers"}


def days(count: int) -> list[Interval]:
    return [Interval(FIRST + DAY * number, FIRST + DAY * (number + 1)) for number in range(count)]


def test_the_ledger_lists_intervals_in_order_of_time(run_log: RunLog) -> None:
    run_log.record_intervals("orders", reversed(days(12)))
    run_log.record_intervals("customers", days(1))
    assert run_log.intervals("orders") == days(12)
    assert run_log.intervals("nobody") == []


def test_an_interval_is_taken_by_one_worker_until_it_is_done(run_log: RunLog) -> None:
    run_log.record_intervals("orders", days(1))
    assert run_log.take_interval("orders", FIRST, FIRST + DAY, this_worker(), 60)
    assert not run_log.take_interval("orders", FIRST, FIRST + DAY, ELSEWHERE, 60)
    (running,) = run_log.intervals("orders")
    assert (running.status, running.attempt, running.worker_id) == ("running", 1, this_worker())
    done = Interval(FIRST, FIRST + DAY, "done", run_id="r-1", worker_id=this_worker())
    run_log.record_intervals("orders", [done])
    (ended,) = run_log.intervals("orders")
    assert (ended.status, ended.run_id, ended.attempt, ended.expires_at) == ("done", "r-1", 1, None)
    assert not run_log.take_interval("orders", FIRST, FIRST + DAY, this_worker(), 60)


def test_a_failed_interval_may_be_tried_again_and_counts_its_attempts(run_log: RunLog) -> None:
    for attempt in (1, 2):
        assert run_log.take_interval("orders", FIRST, FIRST + DAY, this_worker(), 60)
        failed = Interval(FIRST, FIRST + DAY, "failed", error="bad day", worker_id=this_worker())
        run_log.record_intervals("orders", [failed])
        (known,) = run_log.intervals("orders")
        assert (known.status, known.attempt, known.error) == ("failed", attempt, "bad day")


def test_planning_again_leaves_an_interval_with_its_worker_and_reopens_what_is_done(run_log: RunLog) -> None:
    first, second = days(2)
    run_log.record_intervals("orders", [Interval(second.start, second.end, "done")])
    assert run_log.take_interval("orders", first.start, first.end, this_worker(), 60)
    run_log.record_intervals("orders", days(2))
    assert [found.status for found in run_log.intervals("orders")] == ["running", "planned"]


def test_the_word_of_a_worker_that_lost_its_interval_does_not_count(run_log: RunLog) -> None:
    assert run_log.take_interval("orders", FIRST, FIRST + DAY, ELSEWHERE, 0.2)
    time.sleep(0.3)
    assert run_log.take_interval("orders", FIRST, FIRST + DAY, this_worker(), 60)
    assert not run_log.renew_interval("orders", FIRST, FIRST + DAY, ELSEWHERE, 60)
    run_log.record_intervals("orders", [Interval(FIRST, FIRST + DAY, "done", worker_id=ELSEWHERE)])
    (known,) = run_log.intervals("orders")
    assert (known.status, known.worker_id, known.attempt) == ("running", this_worker(), 2)


def test_a_renewed_interval_stays_with_its_worker(run_log: RunLog) -> None:
    assert run_log.take_interval("orders", FIRST, FIRST + DAY, ELSEWHERE, 0.3)
    assert run_log.renew_interval("orders", FIRST, FIRST + DAY, ELSEWHERE, 60)
    time.sleep(0.4)
    assert not run_log.take_interval("orders", FIRST, FIRST + DAY, this_worker(), 60)
    assert not run_log.renew_interval("orders", FIRST + DAY, FIRST + 2 * DAY, ELSEWHERE, 60)


def test_a_slot_names_the_run_that_stands_for_it(run_log: RunLog) -> None:
    assert run_log.take_slot("orders", "cron:1", "a:1:1", run_id="0123")
    assert not run_log.take_slot("orders", "cron:1", "b:1:1", run_id="4567")
    assert [slot.run_id for slot in run_log.slots("orders")] == ["0123"]
    assert run_log.last_slots("cron")["orders"].run_id == "0123"


def test_a_run_is_offered_once_and_taken_once(run_log: RunLog) -> None:
    offered = RunRecord("0123", "orders", "requested", FIRST, extras={"slot": "cron:1"})
    assert run_log.offer_run(offered)
    assert not run_log.offer_run(offered)
    assert [record.run_id for record in run_log.pending_actions()] == ["0123"]
    assert run_log.take_action("0123", "a:1:1")
    assert not run_log.take_action("0123", "b:1:1")
    assert not run_log.offer_run(offered)
    found = run_log.get_run("0123")
    assert found is not None
    assert (found.status, found.extras["worker"], found.extras["slot"]) == ("running", "a:1:1", "cron:1")


def test_a_run_that_has_moved_on_is_not_offered_again(run_log: RunLog) -> None:
    offered = RunRecord("0123", "orders", "requested", FIRST)
    assert run_log.offer_run(offered)
    run_log.record_run_record(RunRecord("0123", "orders", "succeeded", FIRST + DAY, FIRST + DAY))
    assert not run_log.offer_run(offered)
    assert run_log.pending_actions() == []


def test_only_a_leader_whose_lease_holds_may_offer_a_run(run_log: RunLog) -> None:
    lead = run_log.claim("_scheduler", ELSEWHERE, 60)
    assert lead.token is not None
    run_log.release(lead.token)
    with pytest.raises(LeaseLost):
        run_log.offer_run(RunRecord("0123", "orders", "requested", FIRST), leader=lead.token)
    assert run_log.get_run("0123") is None
