"""Joins of two streams: rows with equal keys whose event times are near each other.

The state is the rows themselves, each with its side, its event time and the watermark before the micro-batch in which
it came (`ARRIVED`). Emitted pairs are not recorded, because they follow from these alone:

- A row is evicted when the watermark is beyond its event time plus `reach`: the horizon and the allowed lateness.
- Of two rows that match, the later one came while the watermark was its `ARRIVED`, and was not late. The pair was
  emitted then if the earlier one was not evicted: `ARRIVED` of the later <= event time of the earlier + reach. The
  same with the roles changed always holds, because watermarks only grow: ARRIVED of the earlier <= ARRIVED of the
  later <= event time of the later + reach. So a pair was emitted if both hold, whichever row was first.
- An outer join emits a row without a partner when it is evicted. No pair of it can be emitted afterwards, and earlier
  ones are found by the same test, as long as partners stay: one may be evicted earlier than the row, by the distance
  of the two.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from ematix_flow.declare.streams.parts import Join
from ematix_flow.foundation.errors import MissingColumn, PlanError
from ematix_flow.foundation.names import did_you_mean
from ematix_flow.messages.decode import RAW, SOURCE
from ematix_flow.sql.spark_text import quote
from ematix_flow.streaming.state.join_keys import JoinKeys
from ematix_flow.streaming.state.operator import AT, BATCH, WatermarkChange

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

SIDE = "_flow_side"
ARRIVED = "_flow_arrived"
LEFT, RIGHT = "left", "right"
"""The sides, and the columns of the state that hold their rows."""
_PRESERVED = {"inner": (), "left_outer": (LEFT,), "right_outer": (RIGHT,), "full_outer": (LEFT, RIGHT)}
_OTHER = {LEFT: RIGHT, RIGHT: LEFT}
_OWN = "_flow_"
_AS_ONE = "spark_partition_id() >= 0"
"""Always true, which Spark cannot infer: else it makes an anti-join with a union one for each part of the state."""
_FAR = 2**61
"""The limit to which moments are clamped, tens of thousands of years away: sums with them stay in 64 bits."""


@dataclass(frozen=True)
class JoinOperator:
    """A join that emits pairs at once, and rows without a partner when none can come any more."""

    join: Join

    @property
    def _deltas(self) -> tuple[int, int]:
        """Return how far the right row may be from the left one, in microseconds."""
        low, high = self.join.min_delta_ms, self.join.max_delta_ms
        if low is None or high is None:
            low, high = -self.join.time_window_ms, self.join.time_window_ms
        return low * 1000, high * 1000

    @property
    def _reach(self) -> int:
        """Return how far the watermark goes beyond a row before the row is evicted, in microseconds."""
        return max(map(abs, self._deltas)) + (self.join.allowed_lateness_ms or 0) * 1000

    def _preserves(self, side: str) -> bool:
        return side in _PRESERVED[self.join.kind]

    def _keys(self, side: str) -> Sequence[str]:
        return self.join.left_keys if side == LEFT else self.join.right_keys

    def late(self, mark: int) -> str:
        """Return SQL for whether a row would be evicted already."""
        return f"{AT} < {_moment(mark - self._reach)}"

    def partials(self, rows: Sequence[DataFrame], mark: int | None) -> DataFrame:
        """Return the rows of both sides, without those that can neither match nor be emitted alone."""
        left, right = (self._remembered(frame, side, mark) for frame, side in zip(rows, (LEFT, RIGHT), strict=True))
        return left.unionByName(right, allowMissingColumns=True)

    def _remembered(self, rows: DataFrame, side: str, mark: int | None) -> DataFrame:
        columns = [name for name in rows.columns if not name.startswith(_OWN) and name not in (RAW, SOURCE)]
        is_known = any(name != self.join.event_time_column for name in columns)
        if is_known:
            self._require_keys(columns, side)
        if not self._preserves(side):
            can_match = " AND ".join(f"{quote(key)} IS NOT NULL" for key in self._keys(side))
            rows = rows.where(can_match if is_known else "false")
        row = [f"struct({', '.join(map(quote, columns))}) AS {quote(side)}"] if columns else []
        return rows.selectExpr(
            f"'{side}' AS {SIDE}",
            f"least(greatest({AT}, {-_FAR}), {_FAR}) AS {AT}",
            f"{_moment(-_FAR if mark is None else mark)}L AS {ARRIVED}",
            *row,
        )

    def _require_keys(self, columns: Sequence[str], side: str) -> None:
        existing = {name.lower() for name in columns}
        for key in self._keys(side):
            if key.lower() not in existing:
                source = self.join.left_source if side == LEFT else self.join.right_source
                raise MissingColumn(
                    f"the rows of {source!r} have no column {key!r}, by which they are joined",
                    hint=f"{did_you_mean(key, columns)} It is named in {side}_keys of the join",
                )

    def emitted(self, state: DataFrame, marks: WatermarkChange, number: int) -> DataFrame:
        """Return the pairs of the new rows, and the evicted rows that never had a partner."""
        output, test = _JoinOutput.of(state, self.join), self._test(state)
        rows = {side: state.where(f"{SIDE} = '{side}'").alias(side[0]) for side in (LEFT, RIGHT)}
        outputs = [output.of_pairs(pairs) for pairs in self._pairs(rows, test, marks.before, number)]
        if marks.after is not None and marks.after != marks.before:
            for side in _PRESERVED[self.join.kind]:
                outputs.append(output.of_one(self._alone(rows, test, side, marks.before, marks.after), side))
        return reduce(lambda one, other: one.union(other), outputs) if outputs else output.of_none(state)

    def _test(self, state: DataFrame) -> str | None:
        """Return SQL for whether rows `l` and `r` were emitted as a pair; None as long as a side's keys are unknown."""
        kinds = {field.name: field.dataType for field in state.schema.fields}
        if LEFT not in kinds or RIGHT not in kinds:
            return None
        left, right = (JoinKeys.of(f"{side[0]}.{quote(side)}", kinds[side], self._keys(side)) for side in (LEFT, RIGHT))
        if left is None or right is None:
            return None
        low, high = self._deltas
        near = f"r.{AT} - l.{AT} BETWEEN {low} AND {high}"
        met = f"l.{ARRIVED} <= r.{AT} + {self._reach} AND r.{ARRIVED} <= l.{AT} + {self._reach}"
        return f"{left.equal(right)} AND {near} AND {met}"

    def _pairs(
        self, rows: Mapping[str, DataFrame], test: str | None, before: int | None, number: int
    ) -> Iterator[DataFrame]:
        """Yield every pair with a new row once: new left rows with all right ones, then old left rows with new ones."""
        if test is None:
            return
        if before is not None:  # the test implies it, but a number lets Spark skip files
            rows = {side: frame.where(f"{AT} >= {_moment(before - self._reach)}") for side, frame in rows.items()}
        is_new = f"{BATCH} = {number}"
        yield self._joined(rows[LEFT].where(is_new), rows[RIGHT], test, "inner")
        yield self._joined(rows[LEFT].where(f"NOT {is_new}"), rows[RIGHT].where(is_new), test, "inner")

    def _alone(
        self, rows: Mapping[str, DataFrame], test: str | None, side: str, before: int | None, after: int
    ) -> DataFrame:
        """Return the rows of a side that are evicted now, and were emitted in no pair."""
        nearest, farthest = self._partners(side)
        first = None if before is None else before - self._reach
        evicted = rows[side].where(_is_between(first, after - self._reach))
        if test is None:
            return evicted
        partners = rows[_OTHER[side]].where(
            _is_between(None if first is None else first + nearest, after - self._reach + farthest)
        )
        return self._joined(evicted.where(_AS_ONE), partners, test, "left_anti")

    def _partners(self, side: str) -> tuple[int, int]:
        """Return how far partners of a row of this side may be from it, in microseconds."""
        low, high = self._deltas
        return (low, high) if side == LEFT else (-high, -low)

    def _joined(self, one: DataFrame, other: DataFrame, test: str, how: str) -> DataFrame:
        from pyspark.errors import AnalysisException
        from pyspark.sql import functions as f

        try:
            return one.join(other, f.expr(test), how)
        except AnalysisException as exc:
            keys = [f"{left} = {right}" for left, right in zip(self.join.left_keys, self.join.right_keys, strict=True)]
            raise PlanError(
                f"{self.join.left_source!r} and {self.join.right_source!r} cannot be joined by {', '.join(keys)}: "
                f"the types of the two sides cannot be compared ({exc.getCondition() or 'Spark refuses it'})",
                hint="send the keys with the same type on both sides, or as text on one of them",
            ) from exc

    def compacted(self, state: DataFrame, mark: int | None) -> DataFrame:
        """Return the rows that can still match, and those that show that a row not evicted yet had a partner."""
        if mark is None:
            return state
        stays = []
        for side in (LEFT, RIGHT):
            other = _OTHER[side]
            longer = max(0, -self._partners(other)[0]) if self._preserves(other) else 0
            stays.append(f"({SIDE} = '{side}' AND {AT} >= {_moment(mark - self._reach - longer)})")
        return state.where(" OR ".join(stays))

    def due(self) -> str:
        """Return SQL for when a row is evicted, if it is emitted then."""
        sides = ", ".join(f"'{side}'" for side in _PRESERVED[self.join.kind])
        return f"CASE WHEN {SIDE} IN ({sides}) THEN {AT} + {self._reach + 1} END" if sides else "CAST(NULL AS BIGINT)"


@dataclass(frozen=True)
class _JoinOutput:
    """The columns of the result: those of the left rows, then those of the right ones."""

    columns: Mapping[str, Sequence[tuple[str, str, DataType]]]
    """The name in the row, the name in the result, and the type, by side."""

    @classmethod
    def of(cls, state: DataFrame, join: Join) -> _JoinOutput:
        kinds: dict[str, Any] = {field.name: field.dataType for field in state.schema.fields}
        prefixes = {LEFT: join.left_column_prefix, RIGHT: join.right_column_prefix}
        columns = {
            side: [(field.name, prefix + field.name, field.dataType) for field in kinds[side].fields]
            if side in kinds else []
            for side, prefix in prefixes.items()
        }  # fmt: skip
        names = [name.lower() for side in columns.values() for _, name, _ in side]
        for name in names:
            if names.count(name) > 1:
                raise PlanError(
                    f"the join would write the column {name!r} twice",
                    hint="choose another left_column_prefix or right_column_prefix",
                )
        return cls(columns)

    def of_pairs(self, pairs: DataFrame) -> DataFrame:
        return pairs.select(*self._held(LEFT), *self._held(RIGHT))

    def of_one(self, rows: DataFrame, side: str) -> DataFrame:
        held = {which: self._held(which) if which == side else self._missing(which) for which in (LEFT, RIGHT)}
        return rows.select(*held[LEFT], *held[RIGHT])

    def of_none(self, state: DataFrame) -> DataFrame:
        return state.where("false").select(*self._missing(LEFT), *self._missing(RIGHT))

    def _held(self, side: str) -> list[Column]:
        from pyspark.sql import functions as f

        column = f"{side[0]}.{quote(side)}"
        return [f.expr(f"{column}.{quote(name)}").alias(shown) for name, shown, _ in self.columns[side]]

    def _missing(self, side: str) -> list[Column]:
        from pyspark.sql import functions as f

        return [f.lit(None).cast(kind).alias(shown) for _, shown, kind in self.columns[side]]


def _is_between(first: int | None, end: int) -> str:
    """Return SQL for the interval from one moment to another, without the latter."""
    until = f"{AT} < {_moment(end)}"
    return until if first is None else f"{AT} >= {_moment(first)} AND {until}"


def _moment(value: int) -> int:
    return max(-_FAR, min(value, _FAR))
