"""Joins of two streams: every pair once, rows without a partner when none can come any more, and little remembered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ematix_flow.declare.streams.parts import Join
from ematix_flow.engine.session import spark_session
from ematix_flow.engine.streams.stateful.joins import JoinOperator
from ematix_flow.engine.streams.stateful.operator import AT, BATCH, Marks
from ematix_flow.foundation.errors import MissingColumn, PlanError
from tests.full import IS_FULL
from tests.streams.conftest import JARS
from tests.streams.join_oracle import Clock, Oracle, Pair, Told

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

    def take(self, left: Any, right: Any, marks: Marks) -> Any:
        self.number += 1
        rows = [left, right]
        if marks.before is not None:
            rows = [side.where(f"NOT ({self.operator.late(marks.before)})") for side in rows]
        part = self.operator.partials(rows, marks.before).selectExpr("*", f"{self.number}L AS {BATCH}")
        self.parts.append(written(part))
        return self.operator.emitted(self.state, marks, self.number)

    def compact(self, mark: int | None) -> None:
        self.parts = [written(self.operator.kept(self.state, mark))]


def written(part: Any) -> Any:
    """A part that is kept somewhere: what reads it does not compute it again."""
    return spark_session(JARS).createDataFrame(part.collect(), part.schema)


def told(rows: Sequence[Told], side: str) -> Any:
    return frame(
        [(row.key, row.number, row.at) for row in rows if row.side == side], f"k BIGINT, n BIGINT, {AT} BIGINT"
    )


_MOMENTS = st.tuples(st.integers(-14, 14), st.sampled_from((0, 0, 0, 1, -1)))
_ROWS = st.tuples(st.sampled_from(("left", "right")), st.sampled_from((None, *range(6))), _MOMENTS)
_BATCHES = st.lists(st.tuples(st.lists(_ROWS, max_size=24), st.booleans()), min_size=3, max_size=5)
_TIMES = st.sampled_from(
    ({"time_window_ms": 5}, {"min_delta_ms": -2, "max_delta_ms": 7}, {"min_delta_ms": 3, "max_delta_ms": 6},
     {"min_delta_ms": -8, "max_delta_ms": -1})
)  # fmt: skip
_LATE = st.sampled_from(({}, {"late_data": "reopen", "allowed_lateness_ms": 4}))


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
        given = [Told(side, key, (number * step + ms) * MS + micros, next(numbers)) for side, key, (ms, micros) in rows]
        marks = clock.after(given)
        out = stream.take(told(given, "left"), told(given, "right"), marks)
        found = Counter[Pair]((row.left_n, row.right_n) for row in out.collect())
        assert found == oracle.batch(given, marks)
        if compacts:
            stream.compact(marks.after)
