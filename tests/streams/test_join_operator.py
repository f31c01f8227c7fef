"""Joins of two streams: every pair once, rows without a partner when none can come any more, and little remembered."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as f
from pyspark.sql import types as t

from ematix_flow.declare.streams.parts import Join
from ematix_flow.engine.session.session import spark_session
from ematix_flow.foundation.errors import MissingColumn, PlanError
from ematix_flow.streaming.state.joins import JoinOperator
from ematix_flow.streaming.state.operator import AT, BATCH, WatermarkChange
from tests.full import IS_FULL
from tests.streams.conftest import JARS
from tests.streams.join_oracle import Arrival, Clock, Oracle, Pair

pytestmark = pytest.mark.usefixtures("every_jar")

MS = 1000
KINDS = ("inner", "left_outer", "right_outer", "full_outer")


def join(**said: Any) -> Join:
    """Orders and payments by `k`, five milliseconds apart unless it is said otherwise."""
    if "min_delta_ms" not in said:
        said.setdefault("time_window_ms", 5)
    given = {"left_source": "orders", "right_source": "payments", "left_keys": ("k",), "right_keys": ("k",)}
    return Join(**{**given, **said})


def frame(rows: Sequence[tuple[Any, ...]], columns: str) -> Any:
    return spark_session(JARS).createDataFrame(list(rows), columns)


def small(rows: Sequence[str], kind: Any) -> Any:
    """Rows that are said as JSON, in the plan itself: Spark knows that they are few."""
    of_rows = f.from_json(f.lit(f"[{','.join(rows)}]"), t.ArrayType(kind))
    return spark_session(JARS).range(1).select(f.inline(of_rows))


def written(part: Any) -> Any:
    """A part that is kept somewhere: what reads it does not compute it again."""
    return small([row[0] for row in part.selectExpr("to_json(struct(*))").collect()], part.schema)


@dataclass
class Stream:
    """What calls the operator: adds up the state, moves the watermark and compacts."""

    join: Join
    parts: list[Any] = field(default_factory=list)
    number: int = -1

    def __post_init__(self) -> None:
        self.operator = JoinOperator(self.join)

    @property
    def state(self) -> Any:
        return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), self.parts)

    def take(self, left: Any, right: Any, marks: WatermarkChange) -> Any:
        self.number += 1
        rows = [left, right]
        if marks.before is not None:
            rows = [side.where(f"NOT ({self.operator.late(marks.before)})") for side in rows]
        part = self.operator.partials(rows, marks.before).selectExpr("*", f"{self.number}L AS {BATCH}")
        self.parts.append(written(part))
        return self.operator.emitted(self.state, marks, self.number)

    def compact(self, mark: int | None) -> None:
        self.parts = [written(self.operator.compacted(self.state, mark))]


def frame_of(rows: Sequence[Arrival], side: str) -> Any:
    given = [json.dumps({"k": row.key, "n": row.number, AT: row.at}) for row in rows if row.side == side]
    return small(given, t.StructType.fromDDL(f"k BIGINT, n BIGINT, {AT} BIGINT"))


_MOMENTS = st.tuples(st.integers(-14, 14), st.sampled_from((0, 0, 0, 1, -1)))
_ROWS = st.tuples(st.sampled_from(("left", "right")), st.sampled_from((None, *range(6))), _MOMENTS)
_BATCHES = st.lists(st.tuples(st.lists(_ROWS, max_size=24), st.booleans()), min_size=2, max_size=4)
_TIMES = st.sampled_from(
    ({"time_window_ms": 5}, {"min_delta_ms": -2, "max_delta_ms": 7}, {"min_delta_ms": 3, "max_delta_ms": 6},
     {"min_delta_ms": -8, "max_delta_ms": -1})
)  # fmt: skip
_LATE = st.sampled_from(({}, {"late_data": "reopen", "allowed_lateness_ms": 4}))


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=12 if IS_FULL else 2, suppress_health_check=list(HealthCheck))
@given(batches=_BATCHES, times=_TIMES, late=_LATE, lateness=st.sampled_from((0, 3)), step=st.sampled_from((4, 9)))
def test_whatever_comes_in_whatever_order_gives_what_it_gives_row_by_row(
    kind: str, batches: list[Any], times: dict[str, Any], late: dict[str, Any], lateness: int, step: int
) -> None:
    said = join(kind=kind, **times, **late)
    stream, oracle, clock = Stream(said), Oracle(said), Clock(lateness * MS)
    numbers = iter(range(1000))
    for number, (rows, compacts) in enumerate([*batches, ([("left", 0, (500, 0)), ("right", 1, (500, 0))], False)]):
        given = [
            Arrival(side, key, (number * step + ms) * MS + micros, next(numbers)) for side, key, (ms, micros) in rows
        ]
        marks = clock.after(given)
        out = stream.take(frame_of(given, "left"), frame_of(given, "right"), marks)
        found = Counter[Pair]((row.left_n, row.right_n) for row in out.collect())
        assert found == oracle.batch(given, marks)
        if compacts:
            stream.compact(marks.after)


def outcome(frame: Any) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, frame.collect()), key=str)


@pytest.mark.full
def test_a_side_without_rows_so_far_has_no_columns_and_columns_may_come_later() -> None:
    stream = Stream(join(kind="full_outer", right_column_prefix="p_"))
    unseen = frame([], f"_event_ts TIMESTAMP, _raw BINARY, _source STRING, {AT} BIGINT").select(AT, "_raw", "_source")
    orders = f"k BIGINT, item STRING, {AT} BIGINT, _raw BINARY, _source STRING, _flow_x INT"
    out = stream.take(
        frame([(1, "tea", 0, b"", "", 0), (2, "ink", 0, b"", "", 0)], orders), unseen, WatermarkChange(None, None)
    )
    assert (out.columns, outcome(out)) == (["left_k", "left_item"], [])
    payments = frame([(1, 9.5, MS)], f"k BIGINT, amount DOUBLE, {AT} BIGINT")
    out = stream.take(frame([], orders), payments, WatermarkChange(None, 0))
    assert out.columns == ["left_k", "left_item", "p_k", "p_amount"]
    assert outcome(out) == [(1, "tea", 1, 9.5)]
    stream.compact(0)
    wider = frame([(1, "tea", True, 2 * MS)], f"k BIGINT, item STRING, is_gift BOOLEAN, {AT} BIGINT")
    out = stream.take(wider, frame([], f"k BIGINT, amount DOUBLE, {AT} BIGINT"), WatermarkChange(0, 5 * MS + 1))
    assert out.columns == ["left_k", "left_item", "left_is_gift", "p_k", "p_amount"]
    assert outcome(out) == [(1, "tea", True, 1, 9.5), (2, "ink", None, None, None)]


@pytest.mark.full
def test_nothing_comes_out_as_long_as_neither_side_is_known() -> None:
    stream, unseen = Stream(join(kind="left_outer")), frame([], f"{AT} BIGINT")
    out = stream.take(unseen, unseen, WatermarkChange(None, None))
    assert (out.columns, out.count()) == ([], 0)


@pytest.mark.full
def test_rows_of_a_side_that_is_preserved_come_out_before_the_other_side_is_ever_seen() -> None:
    stream = Stream(join(kind="left_outer"))
    rows = frame([(1, 0), (None, 0)], f"k BIGINT, {AT} BIGINT")
    out = stream.take(rows, frame([], f"{AT} BIGINT"), WatermarkChange(None, 5 * MS + 1))
    assert (out.columns, outcome(out)) == (["left_k"], [(1,), (None,)])


@pytest.mark.full
@pytest.mark.parametrize(
    ("left", "right", "pairs"),
    [
        (("BIGINT", [1, 2]), ("STRING", ["1", "x", " 2", "1.5"]), 2),
        (("STRING", ["1", "01", "2.0"]), ("DOUBLE", [1.0, 2.0]), 3),
        (("INT", [1, 2]), ("DOUBLE", [1.0, 2.5]), 1),
        (("DECIMAL(10,2)", ["1.00", "2.50"]), ("STRING", ["1", "1.004", "2.5"]), 2),
        (("TIMESTAMP", ["2026-03-01 00:00:00"]), ("STRING", ["2026-03-01T00:00:00Z", "today?"]), 1),
        (("DATE", ["2026-03-01"]), ("TIMESTAMP", ["2026-03-01 00:00:00", "2026-03-01 01:00:00"]), 1),
        (("STRING", ["a", None]), ("STRING", ["a", "A", None]), 1),
    ],
)  # fmt: skip
def test_keys_of_different_types_are_compared_as_what_they_mean(
    left: tuple[str, list[Any]], right: tuple[str, list[Any]], pairs: int
) -> None:
    rows = [
        frame([(None if value is None else str(value),) for value in values], "k STRING").selectExpr(
            f"CAST(k AS {kind}) AS k", f"0L AS {AT}"
        )
        for kind, values in (left, right)
    ]
    assert Stream(join()).take(*rows, WatermarkChange(None, None)).count() == pairs


@pytest.mark.parametrize(("left", "right"), [("true", "1L"), ("map('a', 1)", "map('a', 1)")])
def test_keys_that_cannot_be_compared_say_so(left: str, right: str) -> None:
    one = spark_session(JARS).range(1)
    rows = [one.selectExpr(f"{value} AS k", f"0L AS {AT}") for value in (left, right)]
    with pytest.raises(PlanError, match="cannot be joined by k = k") as caught:
        Stream(join()).take(*rows, WatermarkChange(None, None))
    assert "the same type on both sides" in str(caught.value)


@pytest.mark.full
def test_a_key_that_rows_do_not_have_and_a_column_that_would_be_there_twice_are_reported() -> None:
    one = spark_session(JARS).range(1)
    rows = one.selectExpr("1 AS customer", "2 AS right_k", f"0L AS {AT}"), one.selectExpr("1 AS k", f"0L AS {AT}")
    with pytest.raises(MissingColumn, match="the rows of 'orders' have no column 'custome'") as caught:
        Stream(join(left_keys=("custome",))).take(*rows, WatermarkChange(None, None))
    assert "did you mean 'customer'?" in str(caught.value)
    with pytest.raises(PlanError, match="the column 'right_k' twice"):
        Stream(join(left_keys=("CUSTOMER",), left_column_prefix="")).take(*rows, WatermarkChange(None, None))


def test_rows_are_forgotten_when_no_row_can_join_them_any_more() -> None:
    rows = [(number, number * MS) for number in range(-20, 21)]
    columns = f"k BIGINT, {AT} BIGINT"

    def left_over(**said: Any) -> dict[str, int]:
        stream = Stream(join(**said))
        stream.take(frame(rows, columns), frame(rows, columns), WatermarkChange(None, 0))
        stream.compact(0)
        return {row[0]: row[1] // MS for row in stream.state.groupBy("_flow_side").agg({AT: "min"}).collect()}

    assert left_over(kind="inner") == {"left": -5, "right": -5}
    assert left_over(kind="left_outer") == {"left": -5, "right": -10}
    assert left_over(kind="right_outer", min_delta_ms=-2, max_delta_ms=7) == {"left": -14, "right": -7}
    assert left_over(kind="full_outer", min_delta_ms=2, max_delta_ms=7) == {"left": -14, "right": -7}
    assert left_over(kind="inner", late_data="reopen", allowed_lateness_ms=3) == {"left": -8, "right": -8}


def test_a_row_without_a_partner_comes_out_at_the_reported_moment_and_inner_joins_wait_for_none() -> None:
    def due(kind: str) -> list[tuple[Any, ...]]:
        stream = Stream(join(kind=kind, late_data="reopen", allowed_lateness_ms=2))
        rows = frame([(1, 0)], f"k BIGINT, {AT} BIGINT")
        stream.take(rows, rows, WatermarkChange(None, None))
        return outcome(stream.state.selectExpr("_flow_side", stream.operator.due()))

    assert due("inner") == [("left", None), ("right", None)]
    assert due("right_outer") == [("left", None), ("right", 7 * MS + 1)]
    stream, nothing = Stream(join(kind="left_outer")), frame([], f"k BIGINT, {AT} BIGINT")
    assert stream.take(frame([(1, 0)], f"k BIGINT, {AT} BIGINT"), nothing, WatermarkChange(None, 5 * MS)).count() == 0
    assert stream.take(nothing, nothing, WatermarkChange(5 * MS, 5 * MS + 1)).count() == 1
    assert stream.take(nothing, nothing, WatermarkChange(5 * MS + 1, 6 * MS)).count() == 0


@pytest.mark.full
def test_moments_at_the_end_of_time_do_no_harm() -> None:
    far = 2**63 - 1
    rows = frame([(1, far), (1, -far), (1, 0)], f"k BIGINT, {AT} BIGINT")
    stream = Stream(join(kind="full_outer"))
    assert stream.take(rows, rows, WatermarkChange(None, -far)).count() == 3
    assert stream.take(rows.where("false"), rows.where("false"), WatermarkChange(-far, far)).count() == 0


@pytest.mark.full
def test_new_rows_meet_the_state_by_their_keys_however_many_parts_it_has(capsys: pytest.CaptureFixture[str]) -> None:
    stream, rows = Stream(join(kind="full_outer")), frame([(1, 0)], f"k BIGINT, {AT} BIGINT")
    for _ in range(3):
        stream.take(rows, rows, WatermarkChange(None, None))
    stream.take(rows, rows, WatermarkChange(None, 9 * MS)).explain()
    plan = capsys.readouterr().out
    assert plan.count("SortMergeJoin") + plan.count("HashJoin") == 4
    assert "NestedLoop" not in plan
    assert "Cartesian" not in plan


def test_a_row_that_is_gone_has_no_pair_any_more_and_one_that_had_a_pair_does_not_come_out_alone() -> None:
    def side(*rows: Arrival) -> tuple[Any, Any]:
        return frame_of(rows, "left"), frame_of(rows, "right")

    gone = Stream(join(kind="full_outer"))  # and nothing is compacted: the row is still in the state
    assert outcome(gone.take(*side(Arrival("left", 1, 0, 1)), WatermarkChange(None, 6 * MS))) == [(1, 1, None, None)]
    assert outcome(gone.take(*side(Arrival("right", 1, 4 * MS, 2)), WatermarkChange(6 * MS, 6 * MS))) == []
    assert outcome(gone.take(*side(), WatermarkChange(6 * MS, 10 * MS))) == [(None, None, 1, 2)]
    paired = Stream(join(kind="full_outer"))
    rows = Arrival("left", 1, 4 * MS, 1), Arrival("right", 1, 0, 2)
    assert outcome(paired.take(*side(*rows), WatermarkChange(None, 6 * MS))) == [(1, 1, 1, 2)]
    paired.compact(6 * MS)  # the right row is evicted, and still says that the left one has had a partner
    assert outcome(paired.take(*side(), WatermarkChange(6 * MS, 10 * MS))) == []
