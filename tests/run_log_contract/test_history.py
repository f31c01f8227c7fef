"""History: runs, last outcomes and attempts, in every kind of run log."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from ematix_flow.foundation.errors import UnknownName
from ematix_flow.run_log import AttemptState, RunLog, RunRecord

BEGUN = datetime(2026, 1, 1, 12, 0, 0, 123456, tzinfo=timezone.utc)


def record(number: int, *, pipeline: str = "orders", status: str = "succeeded") -> RunRecord:
    started = BEGUN + timedelta(minutes=number)
    ended = None if status == "running" else started + timedelta(seconds=2)
    return RunRecord(f"run-{number:03d}", pipeline, status, started, ended)


def test_a_record_comes_back_as_it_was(run_log: RunLog) -> None:
    kept = RunRecord(
        "r-1", "orders", "failed", BEGUN, BEGUN + timedelta(milliseconds=1), 3, "read", "2026-01-01", "bad ✗ thing",
        "replay", {"targets": [{"rows_inserted": 4}], "note": "Ünïcode"},
    )  # fmt: skip
    run_log.record_run_record(kept)
    assert run_log.get_run("r-1") == kept


def test_text_that_is_no_text_everywhere_is_kept_as_well_as_it_can_be(run_log: RunLog) -> None:
    said = "a zero \x00 and half a character \ud83e"
    run_log.record_run_record(
        RunRecord("r-1", "orders", "failed", BEGUN, BEGUN, error_summary=said, extras={"x": said})
    )
    kept = run_log.get_run("r-1")
    assert kept is not None
    assert (kept.error_summary or "").startswith("a zero \ufffd and half")
    assert kept.extras["x"] == kept.error_summary


def test_a_record_is_replaced_by_what_is_known_later(run_log: RunLog) -> None:
    run_log.record_run_record(record(1, status="running"))
    run_log.record_run_record(record(1))
    records, total = run_log.list_runs()
    assert total == 1
    assert records[0].status == "succeeded"


def test_the_newest_run_comes_first_and_pages_follow_each_other(run_log: RunLog) -> None:
    for number in (2, 5, 1, 4, 3):
        run_log.record_run_record(record(number))
    first, total = run_log.list_runs(limit=2)
    second, _ = run_log.list_runs(limit=2, offset=2)
    last, _ = run_log.list_runs(limit=2, offset=4)
    assert total == 5
    assert [item.run_id for item in first + second + last] == ["run-005", "run-004", "run-003", "run-002", "run-001"]


def test_runs_are_chosen_by_pipeline_and_by_status(run_log: RunLog) -> None:
    run_log.record_run_record(record(1))
    run_log.record_run_record(record(2, status="failed"))
    run_log.record_run_record(record(3, pipeline="customers"))
    records, total = run_log.list_runs(pipeline="orders", status="failed")
    assert (total, [item.run_id for item in records]) == (1, ["run-002"])
    assert run_log.list_runs(pipeline="nobody") == ([], 0)


def test_the_first_letters_of_an_id_are_enough_when_only_one_run_has_them(run_log: RunLog) -> None:
    run_log.record_run_record(RunRecord("abc-1", "orders", "succeeded", BEGUN, BEGUN))
    run_log.record_run_record(RunRecord("abd-2", "orders", "succeeded", BEGUN, BEGUN))
    found = run_log.get_run("abc")
    assert found is not None
    assert found.run_id == "abc-1"
    assert run_log.get_run("x") is None
    with pytest.raises(UnknownName, match="several runs") as caught:
        run_log.get_run("ab")
    assert "abc-1" in (caught.value.hint or "")


def test_a_whole_id_wins_over_longer_ones_that_begin_with_it(run_log: RunLog) -> None:
    run_log.record_run_record(RunRecord("abc", "orders", "succeeded", BEGUN, BEGUN))
    run_log.record_run_record(RunRecord("abcd", "orders", "succeeded", BEGUN, BEGUN))
    found = run_log.get_run("abc")
    assert found is not None
    assert found.run_id == "abc"


def test_signs_that_mean_something_in_sql_mean_nothing_in_an_id(run_log: RunLog) -> None:
    run_log.record_run_record(record(1))
    assert run_log.get_run("run_") is None
    assert run_log.get_run("%") is None
    assert run_log.get_run("' OR 1=1 --") is None


def test_the_last_outcome_replaces_the_one_before(run_log: RunLog) -> None:
    run_log.record_run("orders", BEGUN, False)
    run_log.record_run("orders", BEGUN + timedelta(hours=1), True)
    run_log.record_run("customers", BEGUN, False)
    runs = run_log.last_runs()
    assert (runs["orders"].at, runs["orders"].success) == (BEGUN + timedelta(hours=1), True)
    assert runs["customers"].success is False


def test_attempts_are_counted_until_they_are_cleared(run_log: RunLog) -> None:
    run_log.record_attempt("orders", AttemptState(1, BEGUN))
    run_log.record_attempt("orders", AttemptState(2, BEGUN + timedelta(minutes=1), gave_up=True))
    assert run_log.attempt_states() == {"orders": AttemptState(2, BEGUN + timedelta(minutes=1), True)}
    run_log.clear_attempt_state("orders")
    run_log.clear_attempt_state("nobody")
    assert run_log.attempt_states() == {}


def test_the_newest_run_of_every_pipeline_comes_in_one_answer(run_log: RunLog) -> None:
    for number in (1, 3, 2):
        run_log.record_run_record(record(number))
    run_log.record_run_record(record(9, pipeline="Kunden/täglich.v2", status="running"))
    newest = run_log.latest_runs()
    assert {name: found.run_id for name, found in newest.items()} == {
        "orders": "run-003",
        "Kunden/täglich.v2": "run-009",
    }
    assert newest["orders"] == record(3)


def test_of_two_runs_that_began_at_once_the_order_is_the_same_everywhere(run_log: RunLog) -> None:
    for run_id in ("b", "a", "B", "_"):
        run_log.record_run_record(RunRecord(run_id, "orders", "running", BEGUN))
    assert len({found.run_id for found in run_log.list_runs(limit=2)[0] + run_log.list_runs(limit=2, offset=2)[0]}) == 4


def test_nothing_needs_restoring(run_log: RunLog) -> None:
    run_log.record_run("orders", BEGUN, True)
    run_log.restore_into_process()
    assert set(run_log.last_runs()) == {"orders"}


def test_old_runs_retire_except_those_that_run_and_the_newest_of_each_pipeline(run_log: RunLog) -> None:
    for number in (1, 2, 3, 4):
        run_log.record_run_record(record(number))
    run_log.record_run_record(record(0, status="running"))
    run_log.record_run_record(record(5, pipeline="people"))
    assert run_log.retire_runs(BEGUN + timedelta(minutes=3)) == 2
    assert run_log.retire_runs(BEGUN + timedelta(minutes=60)) == 1
    records, total = run_log.list_runs()
    assert [item.run_id for item in records] == ["run-005", "run-004", "run-000"]
    assert total == 3
    assert run_log.get_run("run-001") is None
