"""What people ask for: queued, listed in order, taken once, in every kind of run log."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from ematix_flow.foundation.errors import LeaseLost, UnknownName
from ematix_flow.run_log import Action, RunLog, RunRecord
from ematix_flow.run_log.history import RunHistoryStore
from ematix_flow.run_log.worker import this_worker

BEGUN = datetime(2026, 1, 1, tzinfo=timezone.utc)


def failed(run_log: RunHistoryStore, run_id: str = "run-1") -> RunRecord:
    record = RunRecord(
        run_id, "orders", "failed", BEGUN, BEGUN + timedelta(seconds=1), attempt=2, failed_step="publish"
    )
    run_log.record_run_record(record)
    return record


def test_requests_wait_in_order_until_a_worker_takes_them(run_log: RunLog) -> None:
    ids = [run_log.enqueue(Action("run", name, by="ana")) for name in ("first", "second", "third")]
    assert [record.run_id for record in run_log.pending_actions()] == ids
    assert run_log.take_action(ids[1], this_worker())
    assert not run_log.take_action(ids[1], this_worker())
    assert not run_log.consume_requested_run(ids[1])
    assert not run_log.take_action("nobody", this_worker())
    assert [record.pipeline for record in run_log.pending_actions()] == ["first", "third"]


def test_an_action_says_everything_that_was_asked(run_log: RunLog) -> None:
    failed(run_log)
    asked = Action("rerun", "orders", "run-1", "load", "ana", {"start": "2026-01-01", "chunks": [1, 2]})
    action_id = run_log.enqueue(asked)
    (waiting,) = run_log.pending_actions()
    assert (waiting.run_id, Action.of(waiting)) == (action_id, asked)


def test_a_run_that_was_asked_for_runs_under_its_own_id_in_the_name_of_its_worker(run_log: RunLog) -> None:
    action_id = run_log.enqueue(Action("run", "orders"))
    assert run_log.take_action(action_id, "host:1:1")
    taken = run_log.get_run(action_id)
    assert taken is not None
    assert (taken.status, taken.extras["worker"]) == ("running", "host:1:1")


def test_a_cancellation_is_gone_once_it_is_taken(run_log: RunLog) -> None:
    action_id = run_log.enqueue(Action("cancel", "orders", "run-1"))
    assert run_log.take_action(action_id, this_worker())
    assert not run_log.take_action(action_id, this_worker())
    assert run_log.get_run(action_id) is None
    assert run_log.list_runs() == ([], 0)


def test_a_restart_begins_at_the_step_that_failed_or_at_the_one_that_is_named(run_log: RunLog) -> None:
    failed(run_log)
    by_itself, named = run_log.enqueue_restart("run-1", None), run_log.enqueue_restart("run-1", "stage")
    waiting = {record.run_id: record for record in run_log.pending_actions()}
    assert Action.of(waiting[by_itself]) == Action("restart", "orders", "run-1", "publish")
    assert Action.of(waiting[named]).from_step == "stage"


def test_a_rerun_is_about_the_run_before(run_log: RunLog) -> None:
    failed(run_log)
    run_log.enqueue_rerun("run-1")
    (waiting,) = run_log.pending_actions()
    assert Action.of(waiting) == Action("rerun", "orders", "run-1")
    assert waiting.extras == {"action": "rerun", "prior_run_id": "run-1", "rerun_full": True}
    assert run_log.list_runs(status="requested", pipeline="orders")[1] == 1
    assert run_log.list_runs(status="requested", pipeline="customers")[1] == 0


def test_an_unknown_run_cannot_be_restarted_or_paused(run_log: RunLog) -> None:
    with pytest.raises(UnknownName):
        run_log.enqueue_restart("run-9", None)
    with pytest.raises(KeyError):
        run_log.enqueue_rerun("run-9")
    with pytest.raises(UnknownName):
        run_log.set_pause("run-9", True)


def test_a_running_run_is_asked_to_pause_and_a_finished_one_is_left_alone(run_log: RunLog) -> None:
    run_log.record_run_record(RunRecord("run-2", "orders", "running", BEGUN, extras={"rows": 3}))
    run_log.set_pause("run-2", True)
    asked = run_log.get_run("run-2")
    assert asked is not None
    assert (asked.status, asked.extras) == ("running", {"rows": 3, "pause_requested": True})
    run_log.record_run_record(RunRecord("run-2", "orders", "paused", BEGUN, extras=asked.extras))
    run_log.set_pause("run-2", False)
    again = run_log.get_run("run-2")
    assert again is not None
    assert (again.status, again.extras["pause_requested"]) == ("running", False)
    before = failed(run_log)
    run_log.set_pause("run-1", True)
    assert run_log.get_run("run-1") == before


def test_only_a_leader_that_still_leads_takes_an_action(run_log: RunLog) -> None:
    action_id = run_log.enqueue(Action("run", "orders"))
    lead = run_log.claim("_scheduler", this_worker(), 60).token or ""
    run_log.release(lead)
    with pytest.raises(LeaseLost):
        run_log.take_action(action_id, this_worker(), leader=lead)
    again = run_log.claim("_scheduler", this_worker(), 60).token
    assert run_log.take_action(action_id, this_worker(), leader=again)


def test_a_run_that_is_only_asked_for_is_not_the_latest_one(run_log: RunLog) -> None:
    known = failed(run_log)
    run_log.enqueue_rerun("run-1")
    run_log.enqueue(Action("run", "customers"))
    assert run_log.latest_runs() == {"orders": known}
    assert run_log.list_runs()[1] == 3


def test_a_run_that_begins_later_than_it_was_asked_for_moves_to_its_place(run_log: RunLog) -> None:
    action_id = run_log.enqueue(Action("run", "orders"))
    asked = run_log.get_run(action_id)
    assert asked is not None
    later = asked.started_at + timedelta(hours=1)
    run_log.record_run_record(RunRecord("between", "orders", "running", asked.started_at + timedelta(minutes=1)))
    assert run_log.take_action(action_id, this_worker())
    run_log.record_run_record(RunRecord(action_id, "orders", "succeeded", later, later))
    records, total = run_log.list_runs()
    assert (total, [record.run_id for record in records]) == (2, [action_id, "between"])
    assert run_log.latest_runs()["orders"].run_id == action_id
    assert run_log.pending_actions() == []
