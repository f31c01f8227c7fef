"""Judging a checkpoint and planning its repair: every case as a value, without a folder."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ematix_flow.contract.stream import LostRows
from ematix_flow.streaming.admin import checkpoint_check
from ematix_flow.streaming.admin.check_findings import DAMAGED, OK, TO_DO, is_damaged
from ematix_flow.streaming.admin.checkpoint_check import check_all
from ematix_flow.streaming.admin.commit_tokens import PartialCommit
from ematix_flow.streaming.admin.inspection import CheckpointInspection, CheckpointLog, SpoolState


def log(*numbers: int, bad: tuple[int, ...] = (), drafts: tuple[str, ...] = ()) -> CheckpointLog:
    return CheckpointLog({number: "is empty" if number in bad else None for number in numbers}, drafts)


HEALTHY = CheckpointInspection(
    "orders", "/folder", generation="abc", offsets=log(3, 4, 5), commits=log(3, 4, 5), tokens={"main.orders": 6}
)


def statuses(look: CheckpointInspection) -> dict[str, str]:
    return {item.about: item.status for item in check_all(look) if item.status != OK}


def test_a_healthy_checkpoint_has_only_good_lines() -> None:
    assert statuses(HEALTHY) == {}
    assert checkpoint_check.plan_repair(HEALTHY) == []
    assert not is_damaged(check_all(HEALTHY))


def test_a_stream_that_never_ran_has_nothing_wrong() -> None:
    assert [item.status for item in check_all(CheckpointInspection("orders", "/folder", exists=False))] == [OK]
    assert statuses(CheckpointInspection("orders", "/folder", note_problem="is not there")) == {}


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"offsets": log(3, 4, 5, 6)}, {}),
        ({"offsets": log(3, 4, 5, 6, 7)}, {"order": DAMAGED}),
        ({"offsets": log(3, 4)}, {"order": DAMAGED}),
        ({"offsets": log(1, 3, 4, 5)}, {"offset log": TO_DO}),
        ({"offsets": log(2, 3, 5)}, {"offset log": DAMAGED}),
        ({"offsets": log(3, 4, 5, 6, bad=(6,))}, {"offset log": DAMAGED}),
        ({"offsets": log(2, 3, 4, 5, bad=(2,))}, {"offset log": TO_DO}),
        ({"offsets": log(3, 4, 5, 6, bad=(5,))}, {"offset log": DAMAGED}),
        ({"commits": log(3, 4, 5, bad=(5,))}, {"commit log": DAMAGED}),
        ({"tokens": {"main.orders": 7}}, {}),
        ({"tokens": {"main.orders": 8}}, {"token of main.orders": DAMAGED}),
        ({"tokens": {"main.orders": 4}}, {"token of main.orders": DAMAGED}),
        ({"tokens": {"main.orders": 4}, "behind": {"main.orders": 2}}, {"backlog": TO_DO}),
        ({"tokens": {"main.orders": None}}, {"token of main.orders": TO_DO}),
        ({"tokens": {"main.orders": "no server answers"}}, {"token of main.orders": TO_DO}),
        ({"reaches": {"copies": PartialCommit(5), "dead letters": PartialCommit(2)}}, {}),
        ({"reaches": {"copies": PartialCommit(None), "dead letters": PartialCommit(None)}}, {}),
        ({"reaches": {"copies": PartialCommit(None)}, "offsets": log(3, 4, 5, 6)}, {"token of copies": TO_DO}),
        ({"reaches": {"copies": PartialCommit(6)}, "offsets": log(3, 4, 5, 6)}, {}),
        ({"reaches": {"copies": PartialCommit(6)}}, {"token of copies": DAMAGED}),
        (
            {"reaches": {"copies": PartialCommit(5, ("t-0 at 7, and the checkpoint says 9",))}},
            {"token of copies": DAMAGED},
        ),
        ({"reaches": {"dead letters": PartialCommit(6)}}, {"dead letters": DAMAGED}),
        ({"reaches": {"copies": "no server answers"}}, {"token of copies": TO_DO}),
        ({"lost": (LostRows("orders-0", "5", "9", 4),)}, {"source": DAMAGED}),
        ({"lost": "no server answers"}, {"source": TO_DO}),
        ({"note_problem": "is not there"}, {"generation": DAMAGED}),
        ({"unfinished_rewind": True}, {"generation": TO_DO}),
        ({"schema_problems": {"schema.json": "cannot be read"}}, {"learned schema": DAMAGED}),
        ({"spools": (SpoolState("mq.orders", 5, 0, True),)}, {}),
        ({"spools": (SpoolState("mq.old", 5, 0, False),)}, {"spool": TO_DO}),
        ({"commits": log(3, 4, 5, drafts=("/folder/x.tmp",))}, {"leftovers": TO_DO}),
    ],
)
def test_each_fault_is_found_by_itself(change: dict[str, Any], wrong: dict[str, str]) -> None:
    look = replace(HEALTHY, **change)
    assert statuses(look) == wrong
    assert all(item.next for item in check_all(look) if item.status != OK)


def test_a_gap_in_the_source_is_reported_with_its_numbers() -> None:
    (line,) = [
        item
        for item in check_all(replace(HEALTHY, lost=(LostRows("orders-0", "5", "9", 4),)))
        if item.status == DAMAGED
    ]
    assert line.says == "no longer keeps 4 message(s) of orders-0 from 5, kept from 9 on"
    assert "flow stream rewind orders --to earliest" in str(line.next)


def test_a_half_written_plan_stays_where_a_target_may_have_its_batch() -> None:
    torn = replace(HEALTHY, offsets=log(3, 4, 5, 6, bad=(6,)))
    (step,) = checkpoint_check.plan_repair(torn)
    assert (step.kind, step.needs_word) == ("remove", False)
    assert step.paths == ("spark/offsets/6", "spark/offsets/.6.crc")
    assert checkpoint_check.plan_repair(replace(torn, tokens={"main.orders": 7})) == []
    assert checkpoint_check.plan_repair(replace(torn, tokens={"main.orders": "no server answers"})) == []
    assert checkpoint_check.plan_repair(replace(torn, reaches={"copies": PartialCommit(6)})) == []


def test_a_damaged_plan_of_a_batch_that_is_done_needs_a_new_checkpoint() -> None:
    torn = replace(HEALTHY, offsets=log(3, 4, 5, bad=(5,)))
    assert checkpoint_check.plan_repair(torn) == []
    (cure,) = [str(item.next) for item in check_all(torn) if item.status == DAMAGED]
    assert cure.endswith("where batch 4 ended: flow stream repair orders --to-batch 4")


def test_a_target_that_was_put_back_is_given_again_what_it_lost() -> None:
    (line,) = [item for item in check_all(replace(HEALTHY, tokens={"main.orders": 4})) if item.status == DAMAGED]
    assert str(line.next).endswith("flow stream repair orders --to-batch 3")
    folder = replace(HEALTHY, tokens={"main.orders": 4}, can_begin_behind_batches=False)
    (line,) = [item for item in check_all(folder) if item.status == DAMAGED]
    assert "flow stream rewind orders" in str(line.next)


def test_a_half_written_commit_is_taken_away_with_its_checksum() -> None:
    (step,) = checkpoint_check.plan_repair(replace(HEALTHY, commits=log(3, 4, 5, bad=(5,))))
    assert step.paths == ("spark/commits/5", "spark/commits/.5.crc")


def test_a_damaged_entry_in_the_middle_is_never_removed() -> None:
    assert checkpoint_check.plan_repair(replace(HEALTHY, commits=log(3, 4, 5, bad=(4,)))) == []


def test_a_lost_generation_needs_a_word_and_is_taken_from_the_only_target_that_fits() -> None:
    lost = replace(HEALTHY, note_problem="is not there", generation=None, tokens={})
    (step,) = checkpoint_check.plan_repair(lost)
    assert (step.kind, step.needs_word, step.paths) == ("generation", True, ())
    known = {"main.orders": {"abc": 6, "older": 3}, "main.copies": {"abc": 7}}
    (step,) = checkpoint_check.plan_repair(lost, known=known)
    assert step.paths == ("abc",)
    (step,) = checkpoint_check.plan_repair(lost, known={"main.orders": {"abc": 6, "def": 7}})
    assert step.paths == ()
