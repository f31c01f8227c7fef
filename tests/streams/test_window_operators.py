"""Tumbling and hopping windows, and every aggregation, against what plain Python says of the same rows."""

from __future__ import annotations

import datetime as dt
import math
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from ematix_flow.declare.streams.parts import Aggregation, Window
from ematix_flow.engine.session.spark_errors import translate
from ematix_flow.foundation.errors import BadValue, DataError, MissingColumn, PlanError
from ematix_flow.streaming.state.opening import operator_of
from ematix_flow.streaming.state.operator import AT, BATCH
from tests.streams.operator_runs import FAR, SECOND, SEEDS, OperatorRun, batched, few, outputs, rows_of, small, spark
from tests.streams.window_oracle import WindowModel, all_windows

__all__ = ["small", "spark"]

KINDS = {
    "tumbling": {"duration_ms": 10_000},
    "hopping": {"duration_ms": 10_000, "hop_ms": 4_000},  # a row is in two windows or in three
}
COUNTS = [Aggregation(agg="count", as_="n"), Aggregation(agg="sum", column="bit", as_="bits")]


def window(kind: str = "tumbling", **fields: Any) -> Window:
    said = {"aggregations": COUNTS, "group_by": ("who",), **KINDS[kind], **fields}
    return Window(kind=kind, **said)


def lengths(kind: str) -> tuple[int, int]:
    shape = KINDS[kind]
    return shape["duration_ms"] * 1000, shape.get("hop_ms", shape["duration_ms"]) * 1000


def around_1970(dice: random.Random) -> Any:
    return lambda: dice.randint(-40 * SECOND, 60 * SECOND)


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
@few
@given(seed=SEEDS)
def test_any_batching_of_the_same_rows_gives_the_same_windows(
    small: Any, tmp_path_factory: Any, kind: str, seed: int
) -> None:
    dice = random.Random(seed)
    rows = rows_of(dice, keys=12, each=30, moments=around_1970(dice))
    lateness = dice.choice([0, 3, 20]) * SECOND
    run = OperatorRun(small, operator_of(window(kind)), tmp_path_factory.mktemp("state"), lateness)
    found = []
    for batch in batched(dice, rows, jitter=lateness, batches=4):
        newest = max((row.at for row in batch), default=None)
        found += outputs(run.step(run.rows(batch), newest, compact=dice.random() < 0.5))
    found += outputs(run.step(run.rows([]), FAR))
    assert run.late == 0
    assert len(found) == len(set(found))
    assert set(found) == all_windows(rows, *lengths(kind))


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("late_data", ["drop", "reopen"])
@few
@given(seed=SEEDS)
def test_late_rows_are_left_out_or_open_what_has_come_out_again(
    small: Any, tmp_path_factory: Any, kind: str, late_data: str, seed: int
) -> None:
    dice = random.Random(seed)
    rows = rows_of(dice, keys=12, each=30, moments=around_1970(dice))
    allowed = 9 if late_data == "reopen" else None
    fields = {"late_data": late_data, "allowed_lateness_ms": allowed and allowed * 1000}
    run = OperatorRun(small, operator_of(window(kind, **fields)), tmp_path_factory.mktemp("state"), 2 * SECOND)
    model = WindowModel(*lengths(kind), lateness=allowed and allowed * SECOND)
    again = 0
    for batch in batched(dice, rows, jitter=40 * SECOND, batches=5):
        before = run.mark
        out = outputs(
            run.step(
                run.rows(batch), max((row.at for row in batch), default=None), compact=dice.random() < 0.5, count=True
            )
        )
        expected = model.step(batch, before, run.mark) if run.mark is not None else set()
        assert sorted(out, key=str) == sorted(expected, key=str)
        again += before is not None and sum(item.end <= before for item in out)
    assert run.late == model.late > 0
    assert bool(again) == (late_data == "reopen")


def test_a_row_is_late_only_when_all_its_windows_are_out(small: Any) -> None:
    operator = operator_of(window("hopping"))
    rows = small.createDataFrame([(7 * SECOND, "a", 1), (8 * SECOND, "a", 1)], f"{AT} BIGINT, who STRING, bit BIGINT")
    assert [row[0] for row in rows.selectExpr(operator.late(18 * SECOND - 1)).collect()] == [True, False]
    assert [row[0] for row in rows.selectExpr(operator.late(18 * SECOND)).collect()] == [True, True]
    open_at_17 = operator.partials([rows.where(f"{AT} = {8 * SECOND}")], 17 * SECOND)
    assert [row["_flow_start"] for row in open_at_17.collect()] == [8 * SECOND]


@pytest.mark.full
def test_before_any_row_has_a_time_the_columns_are_known_already(small: Any, tmp_path: Path) -> None:
    run = OperatorRun(small, operator_of(window()), tmp_path)
    assert run.step(run.rows([]), None, compact=True) == []
    assert run.out().dtypes == [
        ("who", "string"), ("window_start", "timestamp"), ("window_end", "timestamp"), ("n", "bigint"), ("bits", "bigint"),
    ]  # fmt: skip


ODD = [
    ("whole", "INT", [3, None, -8, 3], {"sum": -2, "avg": -2 / 3, "min": -8, "max": 3, "first": 3, "last": 3, "count_distinct": 2}),
    ("large", "BIGINT", [2**62, None, 2**62, -1], {"avg": (2**63 - 1) / 3, "min": -1, "max": 2**62, "count_distinct": 2}),
    ("money", "DECIMAL(10,2)", [Decimal("1.10"), Decimal("2.00"), None, Decimal("-0.05")],
     {"sum": Decimal("3.05"), "avg": Decimal("1.016667"), "min": Decimal("-0.05"), "max": Decimal("2.00"),
      "first": Decimal("1.10"), "last": Decimal("-0.05"), "count_distinct": 3}),
    ("real", "DOUBLE", [0.5, -0.0, None, 0.0], {"sum": 0.5, "avg": 0.5 / 3, "min": 0.0, "max": 0.5, "last": 0.0, "count_distinct": 2}),
    ("nan", "DOUBLE", [math.nan, 1.0, None, math.nan], {"max": math.nan, "min": 1.0, "sum": math.nan, "first": math.nan, "count_distinct": 2}),
    ("small", "FLOAT", [0.5, 0.25, None, 0.25], {"sum": 1.0, "avg": 1 / 3, "min": 0.25, "first": 0.5, "count_distinct": 2}),
    ("text", "STRING", ["", "b", None, "ä"], {"min": "", "max": "ä", "first": "", "last": "ä", "count_distinct": 3}),
    ("day", "DATE", [dt.date(2024, 2, 29), None, dt.date(1969, 1, 1), None],
     {"min": dt.date(1969, 1, 1), "max": dt.date(2024, 2, 29), "first": dt.date(2024, 2, 29), "last": dt.date(1969, 1, 1), "count_distinct": 2}),
    ("moment", "TIMESTAMP_NTZ", [dt.datetime(2024, 1, 1), None, None, dt.datetime(2023, 1, 1, 0, 0, 0, 1)],
     {"min": dt.datetime(2023, 1, 1, 0, 0, 0, 1), "first": dt.datetime(2024, 1, 1), "count_distinct": 2}),
    ("flag", "BOOLEAN", [None, True, False, None], {"min": False, "max": True, "first": True, "last": False, "count_distinct": 2}),
    ("bytes", "BINARY", [b"", b"\xff", None, b"\xff"], {"min": b"", "max": b"\xff", "last": b"\xff", "count_distinct": 2}),
    ("pair", "STRUCT<a: INT, b: STRING>", [(1, None), (1, "x"), None, (0, "y")],
     {"min": (0, "y"), "first": (1, None), "last": (0, "y"), "count_distinct": 3}),
    ("never", "DECIMAL(38,10)", [None, None, None, None],
     {"sum": None, "avg": None, "min": None, "first": None, "last": None, "count_col": 0, "count_distinct": 0}),
]  # fmt: skip
TYPES = {
    "whole_sum": "bigint", "whole_avg": "double", "large_avg": "double", "money_sum": "decimal(20,2)", "money_avg": "decimal(14,6)",
    "small_sum": "double", "small_min": "float", "never_avg": "decimal(38,14)", "day_first": "date", "pair_last": "struct<a:int,b:string>",
    "text_count_distinct": "bigint", "text_count_distinct_exact": "bigint",
}  # fmt: skip


@pytest.mark.parametrize(
    "cuts", [(4,), *(pytest.param(cuts, marks=pytest.mark.full) for cuts in ((1, 1, 1, 1), (2, 2)))], ids=str
)
def test_every_aggregation_knows_every_type_in_any_batching(small: Any, tmp_path: Path, cuts: tuple[int, ...]) -> None:
    asked = [(name, agg, None) for name, _, _, answers in ODD for agg in answers]
    asked += [(name, "count_distinct", "exact") for name, *_ in ODD]
    aggregations = [
        Aggregation(agg=agg, column=name, as_=f"{name}_{agg}_{mode}" if mode else f"{name}_{agg}", mode=mode)
        for name, agg, mode in asked
    ]
    run = OperatorRun(small, operator_of(window(group_by=(), aggregations=aggregations)), tmp_path)
    rows = small.createDataFrame(
        [(number, *(values[number] for _, _, values, _ in ODD)) for number in range(4)],
        ", ".join([f"{AT} BIGINT", *(f"{name} {kind}" for name, kind, *_ in ODD)]),
    ).cache()
    taken = 0
    for size in cuts:
        run.step(rows.where(f"{AT} >= {taken} AND {AT} < {taken + size}"), 0, compact=True)
        taken += size
    run.compact()
    frame = run.out()
    (out,) = frame.collect()
    for name, _, _, answers in ODD:
        for agg, expected in {**answers, "count_distinct_exact": answers["count_distinct"]}.items():
            said = out[f"{name}_{agg}"]
            both_nan = isinstance(expected, float) and math.isnan(expected) and math.isnan(said)
            assert both_nan or said == expected, (name, agg)
    kinds = dict(frame.dtypes)
    assert {column: kinds[column] for column in TYPES} == TYPES


@pytest.mark.full
def test_first_and_last_are_by_event_time_and_of_one_moment_the_smallest_and_the_largest(
    small: Any, tmp_path: Path
) -> None:
    ends = [Aggregation(agg=agg, column="page", as_=agg) for agg in ("first", "last")]
    run = OperatorRun(small, operator_of(window(group_by=(), aggregations=ends)), tmp_path)
    for batch in ([(5, "c"), (9, "x")], [(5, "b"), (1, None)], [(9, "z"), (9, "y"), (9, None)]):
        run.step(small.createDataFrame(batch, f"{AT} BIGINT, page STRING"), 0)
    (out,) = run.out().collect()
    assert (out["first"], out["last"]) == ("b", "z")


@pytest.mark.full
def test_an_approximate_count_is_near_and_does_not_drift_when_partials_are_merged(small: Any, tmp_path: Path) -> None:
    users = Aggregation(agg="count_distinct", column="user", as_="users")
    run = OperatorRun(small, operator_of(window(group_by=(), aggregations=[users])), tmp_path)
    for number in range(3):
        rows = small.range(number * 10_000, number * 10_000 + 20_000).selectExpr(f"0L AS {AT}", "id AS user")
        run.step(rows, 0, compact=True)
    (out,) = run.out().collect()
    assert out["users"] == pytest.approx(40_000, rel=0.03)


@pytest.mark.full
@pytest.mark.parametrize(("before", "more"), [("", "wxyz"), ("a", "d")], ids=["in one batch", "over three"])
def test_an_exact_count_of_too_many_values_ends_the_stream(small: Any, tmp_path: Path, before: str, more: str) -> None:
    users = Aggregation(agg="count_distinct", column="user", as_="users", mode="exact", max_distinct_values_per_group=3)
    schema = f"{AT} BIGINT, user STRING"
    run = OperatorRun(small, operator_of(window(group_by=(), aggregations=[users])), tmp_path)
    run.step(small.createDataFrame([(0, "a"), (0, "b"), (0, "c"), (0, "a"), (0, None)], schema), 0)
    assert run.out().first()["users"] == 3
    for name in before:
        run.step(small.createDataFrame([(0, name)], schema), 0)
    rows = small.createDataFrame([(0, name) for name in more], schema)
    with pytest.raises(Exception, match="FLOW_ERROR") as caught:
        run.step(rows, 0, compact=True)
    error = translate(caught.value)
    assert isinstance(error, BadValue)
    assert (
        "count_distinct(user) AS users found 4 distinct values in one group, and max_distinct_values_per_group is 3"
        in str(error)
    )


def test_a_column_that_is_not_there_is_named_before_spark_runs(small: Any) -> None:
    rows = small.createDataFrame([(0, "a", 1)], f"{AT} BIGINT, who STRING, amount BIGINT")
    with pytest.raises(MissingColumn, match="an Aggregation of the window names 'amuont'") as caught:
        operator_of(window(aggregations=[Aggregation(agg="sum", column="amuont", as_="s")])).partials([rows], None)
    assert caught.value.hint == "did you mean 'amount'?"
    with pytest.raises(MissingColumn, match="group_by of the window names 'country'"):
        operator_of(window(group_by=("country",))).partials([rows], None)


@pytest.mark.full
def test_a_sum_of_text_is_refused_with_the_name_of_its_column(small: Any) -> None:
    rows = small.createDataFrame([(0, "a")], f"{AT} BIGINT, who STRING")
    with pytest.raises(PlanError, match=r"sum\(who\) AS s needs numbers, and the column is STRING"):
        operator_of(window(aggregations=[Aggregation(agg="sum", column="who", as_="s")])).partials([rows], None)


@pytest.mark.full
def test_columns_may_have_any_name_even_those_of_the_state(small: Any, tmp_path: Path) -> None:
    odd = window(
        group_by=("_flow_start", "a.b", "tick`s"), window_start_column="_flow_end", window_end_column=BATCH,
        aggregations=[Aggregation(agg="max", column="_flow_agg0", as_="x y"), Aggregation(agg="count", as_=AT)],
    )  # fmt: skip
    run = OperatorRun(small, operator_of(odd), tmp_path)
    rows = small.createDataFrame(
        [(1, "s", 2, True, 7), (2, "s", 2, True, 9)],
        f"{AT} BIGINT, _flow_start STRING, `a.b` INT, `tick``s` BOOLEAN, _flow_agg0 INT",
    )
    run.step(rows, 0, compact=True)
    out = run.out()
    assert out.columns == ["_flow_start", "a.b", "tick`s", "_flow_end", BATCH, "x y", AT]
    ((*groups, _, _, most, count),) = out.collect()
    assert (groups, most, count) == (["s", 2, True], 9, 2)


@pytest.mark.full
def test_rows_of_several_sources_are_counted_together(small: Any) -> None:
    one = small.createDataFrame([(1, "a", 4)], f"{AT} BIGINT, who STRING, bit BIGINT")
    other = small.createDataFrame([("a", 2)], f"who STRING, {AT} BIGINT")
    state = operator_of(window()).partials([one, other], None)
    assert [(row["_flow_agg0"], row["_flow_agg1"]) for row in state.collect()] == [(2, 4)]


@pytest.mark.full
def test_a_window_with_more_groups_than_allowed_is_refused(small: Any, tmp_path: Path) -> None:
    run = OperatorRun(small, operator_of(window(max_groups_per_window=3)), tmp_path)
    schema = f"{AT} BIGINT, who STRING, bit BIGINT"
    for _ in range(2):  # the same groups again are no more groups
        run.step(small.createDataFrame([(0, who, 1) for who in ("a", "b", None)], schema), 0)
    run.step(small.createDataFrame([(10 * SECOND, who, 1) for who in "abc"], schema), 0)
    run.operator.check_group_limit(run.state)
    run.step(small.createDataFrame([(11 * SECOND, "d", 1)], schema), 0)
    with pytest.raises(DataError, match="starts at 1970-01-01 00:00:10") as caught:
        run.operator.check_group_limit(run.state)
    assert "00:00:10+00:00 has 4 groups, and max_groups_per_window is 3" in str(caught.value)
    run.operator.check_group_limit(run.state, 20 * SECOND)  # it is out by then


@pytest.mark.full
def test_a_state_that_is_compacted_has_one_row_for_each_group_that_can_still_come_out(
    small: Any, tmp_path: Path
) -> None:
    run = OperatorRun(small, operator_of(window()), tmp_path)
    schema = f"{AT} BIGINT, who STRING, bit BIGINT"
    for _ in range(3):
        run.step(small.createDataFrame([(at * SECOND, who, 1) for at in (0, 15) for who in "ab"], schema), 0)
    assert run.state.count() == 12
    run.step(small.createDataFrame([], schema), 10 * SECOND, compact=True)
    kept = run.state.selectExpr("_flow_key0", "_flow_agg0", BATCH, run.operator.due()).collect()
    assert sorted(map(tuple, kept)) == [("a", 3, 2, 20 * SECOND), ("b", 3, 2, 20 * SECOND)]
