"""Sessions of a key, against what plain Python says of the same rows."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from ematix_flow.declare.streams.parts import Aggregation, Window
from ematix_flow.foundation.errors import DataError
from ematix_flow.streaming.state.opening import operator_of
from ematix_flow.streaming.state.operator import AT, BATCH
from tests.streams.operator_runs import (
    FAR,
    SCHEMA,
    SECOND,
    SEEDS,
    OperatorRun,
    batched,
    few,
    outputs,
    rows_of,
    small,
    spark,
)
from tests.streams.sql_session import explained
from tests.streams.window_oracle import Row, SessionModel, all_sessions

__all__ = ["small", "spark"]

GAP, CAP = 5, 18
COUNTS = [Aggregation(agg="count", as_="n"), Aggregation(agg="sum", column="bit", as_="bits")]


def sessions(**fields: Any) -> Window:
    said = {"aggregations": COUNTS, "group_by": ("who",), **fields}
    return Window(kind="session", gap_ms=GAP * 1000, max_session_duration_ms=CAP * 1000, **said)


def walks(dice: random.Random) -> Any:
    """Moments on a coarse grid, so that distances of just a gap and of just a cap are among them."""
    return lambda: dice.randint(-10, 70) * SECOND + dice.choice([0, 0, 1, -1])


def at(*seconds: float, key: str | None = "a") -> list[Row]:
    """Rows at these seconds, each with the next bit."""
    return [Row(key, round(second * SECOND), 1 << number) for number, second in enumerate(seconds)]


def spans(rows: list[Any]) -> list[tuple[float, float, int]]:
    """Start and end in seconds, and how many rows."""
    return sorted((item.start / SECOND, item.end / SECOND, item.rows) for item in outputs(rows))


@pytest.mark.full
@few
@given(seed=SEEDS)
def test_any_order_and_batching_of_the_same_rows_gives_the_same_sessions(
    small: Any, tmp_path_factory: Any, seed: int
) -> None:
    """As long as none is behind the watermark when it comes."""
    dice = random.Random(seed)
    rows = rows_of(dice, keys=30, each=40, moments=walks(dice))
    lateness = dice.choice([3, 12, 100]) * SECOND
    run = OperatorRun(small, operator_of(sessions()), tmp_path_factory.mktemp("state"), lateness)
    found = []
    for batch in batched(dice, rows, jitter=lateness, batches=5):
        newest = max((row.at for row in batch), default=None)
        found += outputs(run.step(run.rows(batch), newest, compact=dice.random() < 0.6))
    found += outputs(run.out().collect())
    expected = all_sessions(rows, GAP * SECOND, CAP * SECOND)
    assert len(found) == len(set(found))
    assert set(found) == expected
    assert any(item.end - item.start == CAP * SECOND for item in expected)


@pytest.mark.full
@few
@given(seed=SEEDS)
def test_no_row_that_is_not_late_is_lost_or_counted_twice(small: Any, tmp_path_factory: Any, seed: int) -> None:
    """Rows far behind the watermark among them."""
    dice = random.Random(seed)
    rows = rows_of(dice, keys=30, each=40, moments=walks(dice))
    run = OperatorRun(small, operator_of(sessions()), tmp_path_factory.mktemp("state"), SECOND)
    model = SessionModel(GAP * SECOND, CAP * SECOND)
    counted, every = 0, []
    for batch in [*batched(dice, rows, jitter=15 * SECOND, batches=6), [Row("end", FAR, 1)]]:
        before = run.mark
        newest = max((row.at for row in batch), default=None)
        out = outputs(run.step(run.rows(batch), newest, compact=dice.random() < 0.5, count=True))
        expected = model.step(batch, before, run.mark) if run.mark is not None else set()
        assert sorted(out, key=str) == sorted(expected, key=str)
        counted += sum(item.rows for item in out)
        every += out
    assert run.late == model.late > 0
    assert model.behind > 0
    assert counted == len(rows) - model.late
    assert max(item.end - item.start for item in every) <= CAP * SECOND


@pytest.mark.full
@few
@given(seed=SEEDS)
def test_late_rows_open_sessions_again_that_have_come_out(small: Any, tmp_path_factory: Any, seed: int) -> None:
    dice = random.Random(seed)
    rows = rows_of(dice, keys=30, each=40, moments=walks(dice))
    spec = sessions(late_data="reopen", allowed_lateness_ms=8_000)
    run = OperatorRun(small, operator_of(spec), tmp_path_factory.mktemp("state"), SECOND)
    model = SessionModel(GAP * SECOND, CAP * SECOND, lateness=8 * SECOND)
    earlier, again = set(), 0
    for batch in [*batched(dice, rows, jitter=35 * SECOND, batches=6), []]:
        before = run.mark
        newest = max((row.at for row in batch), default=FAR if run.number == 5 else None)
        out = outputs(run.step(run.rows(batch), newest, compact=dice.random() < 0.5, count=True))
        expected = model.step(batch, before, run.mark) if run.mark is not None else set()
        assert len(out) == len(set(out))
        assert expected <= set(out)
        assert set(out) - expected <= earlier  # a chain whose cuts moved may tell a piece once more as it was
        again += before is not None and sum(item.end <= before for item in out)
        earlier |= set(out)
    assert run.late == model.late > 0
    assert again > 0


def test_a_gap_and_not_less_parts_two_sessions(small: Any, tmp_path: Path) -> None:
    run = OperatorRun(small, operator_of(sessions()), tmp_path)
    assert spans(run.step(run.rows(at(0, 4.999999, 9.999999)), 9_999_998)) == []
    assert spans(run.step(run.rows(at(14.999998)), 14_999_998)) == [(0, 9.999999, 2)]
    assert spans(run.out().collect()) == [(9.999999, 19.999998, 2)]


def test_a_session_is_cut_after_the_cap_and_its_chain_goes_on(small: Any, tmp_path: Path) -> None:
    run = OperatorRun(small, operator_of(sessions()), tmp_path)
    assert spans(run.step(run.rows(at(1, 5, 9, 13, 17)), 17 * SECOND, compact=True)) == []
    assert spans(run.step(run.rows([]), 19 * SECOND, compact=True)) == [(1, 19, 5)]
    # Only where the chain was is kept, and the cuts to come are counted from its first row.
    assert [tuple(row) for row in run.state.select("_flow_start", "_flow_last", "_flow_agg0").collect()] == [
        (1 * SECOND, 17 * SECOND, None)
    ]
    assert spans(run.step(run.rows(at(21, 25, 29, 33, 37)), 37 * SECOND, compact=True)) == [(21, 37, 4)]
    assert run.state.count() == 2
    assert spans(run.step(run.rows([]), 42 * SECOND, compact=True)) == [(37, 42, 1)]
    assert run.state.count() == 0


@pytest.mark.full
def test_an_earlier_row_moves_the_cuts_as_long_as_nothing_has_come_out(small: Any, tmp_path: Path) -> None:
    run = OperatorRun(small, operator_of(sessions()), tmp_path, lateness=30 * SECOND)
    run.step(run.rows(at(10, 14, 18, 22, 26, 28)), 28 * SECOND, compact=True)
    run.step(run.rows(at(6)), 28 * SECOND, compact=True)
    assert spans(run.out().collect()) == [(6, 24, 5), (26, 33, 2)]


@pytest.mark.full
def test_a_row_behind_the_watermark_joins_what_is_open_and_not_what_has_come_out(small: Any, tmp_path: Path) -> None:
    run = OperatorRun(small, operator_of(sessions()), tmp_path)
    run.step(run.rows(at(0)), 0)
    assert spans(run.step(run.rows([]), 5 * SECOND)) == [(0, 5, 1)]
    assert spans(run.step(run.rows(at(3)), 5 * SECOND)) == []
    assert spans(run.step(run.rows(at(7)), 7 * SECOND)) == []
    assert spans(run.out().collect()) == [(3, 12, 2)]


@pytest.mark.full
def test_a_row_whose_piece_has_come_out_counts_in_the_next(small: Any, tmp_path: Path) -> None:
    run = OperatorRun(small, operator_of(sessions()), tmp_path)
    run.step(run.rows(at(0, 4, 8, 12, 16)), 16 * SECOND)
    assert spans(run.step(run.rows([]), 18 * SECOND)) == [(0, 18, 5)]
    run.step(run.rows(at(17)), 18 * SECOND)
    assert spans(run.out().collect()) == [(18, 22, 1)]


@pytest.mark.full
def test_sessions_of_one_key_become_one_when_a_late_row_joins_them(small: Any, tmp_path: Path) -> None:
    run = OperatorRun(small, operator_of(sessions(late_data="reopen", allowed_lateness_ms=60_000)), tmp_path)
    first = run.step(run.rows(at(0, 8)), 20 * SECOND, compact=True)
    assert spans(first) == [(0, 5, 1), (8, 13, 1)]
    (joined,) = run.step(run.rows(at(4)), 20 * SECOND, compact=True)
    assert spans([joined]) == [(0, 13, 3)]
    assert joined["session_id"] == min(first, key=lambda row: row["window_start"])["session_id"]
    assert run.step(run.rows([]), 21 * SECOND) == []


@pytest.mark.full
def test_compaction_makes_one_row_of_a_session_before_it_is_known_where_it_may_be_cut(
    small: Any, tmp_path: Path
) -> None:
    run = OperatorRun(small, operator_of(sessions()), tmp_path, lateness=2 * SECOND)
    for second in (0, 2, 3, 3.5):
        run.step(run.rows(at(second)), 3 * SECOND)
    assert run.state.count() == 4
    run.compact()
    assert [tuple(row) for row in run.state.selectExpr("_flow_agg0", BATCH, run.operator.due()).collect()] == [
        (4, 3, 8_500_000)
    ]


@pytest.mark.full
def test_rows_of_the_state_are_shuffled_once_a_step(small: Any, tmp_path: Path) -> None:
    run = OperatorRun(small, operator_of(sessions(late_data="reopen", allowed_lateness_ms=1_000)), tmp_path)
    run.step(run.rows(at(0)), 0)
    for frame in (run.out(), run.operator.compacted(run.state, 0)):
        physical = explained(frame).split("== Physical Plan ==")[1]
        assert physical.count("Exchange") == 1


@pytest.mark.full
def test_an_id_is_one_of_key_and_start_whatever_the_time_zone(small: Any, tmp_path: Path) -> None:
    spec = sessions(group_by=("who", "since"), session_id_column="my id")
    run = OperatorRun(small, operator_of(spec), tmp_path)
    keys = "VALUES ('a', 0), ('a', 1), (NULL, 0), ('', NULL), (NULL, NULL)"
    rows = small.sql(f"SELECT 0L AS {AT}, 1L AS bit, who, timestamp_micros(us) AS since FROM {keys} AS rows(who, us)")
    run.step(rows, 0)
    ids = {row["my id"] for row in run.out().collect()}
    assert len(ids) == 5
    small.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        assert {row["my id"] for row in run.out().collect()} == ids
    finally:
        small.conf.set("spark.sql.session.timeZone", "UTC")
    assert run.out().columns == ["who", "since", "window_start", "window_end", "my id", "n", "bits"]


@pytest.mark.full
def test_more_open_sessions_than_allowed_are_refused(small: Any, tmp_path: Path) -> None:
    run = OperatorRun(small, operator_of(sessions(max_groups_per_window=2)), tmp_path)
    run.step(small.createDataFrame([(0, "a", 1), (1, "a", 1), (1, "b", 1)], SCHEMA), 0)
    run.operator.check_group_limit(run.state)
    run.step(small.createDataFrame([(6 * SECOND + 1, "b", 1)], SCHEMA), 0)
    with pytest.raises(DataError, match="3 sessions are open, and max_groups_per_window is 2"):
        run.operator.check_group_limit(run.state, 0)
    run.operator.check_group_limit(run.state, 6 * SECOND)


@pytest.mark.full
def test_a_row_is_late_when_a_session_of_its_own_would_be_out(small: Any) -> None:
    rows = small.createDataFrame([(0,), (1,)], f"{AT} BIGINT")
    again = sessions(late_data="reopen", allowed_lateness_ms=2_000)
    for operator, mark in ((operator_of(sessions()), GAP), (operator_of(again), GAP + 2)):
        assert [row[0] for row in rows.selectExpr(operator.late(mark * SECOND)).collect()] == [True, False]
