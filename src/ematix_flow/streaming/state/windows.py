"""Tumbling and hopping windows: intervals of equal length on the epoch's grid, in UTC, without their end.

A window is emitted when the watermark reaches its end. Rows that come after that are late, a row of several windows
only when all of them were emitted; with `late_data="reopen"` a window is kept for the allowed lateness, and its
groups that late rows touch are emitted again with all their values.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from ematix_flow.streaming.state.grouping import END, START, GroupedOperator, micros
from ematix_flow.streaming.state.operator import AT, BATCH, WatermarkChange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_STEP = "_flow_step"
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class WindowOperator(GroupedOperator):
    """The operator of fixed windows; the state has one row for every window, group and micro-batch."""

    @property
    def _length(self) -> int:
        return micros(self.spec.duration_ms)

    @property
    def _hop(self) -> int:
        return micros(self.spec.hop_ms) or self._length

    def late(self, mark: int) -> str:
        """Return SQL for whether even the last window of a row is closed for good."""
        return f"{self._newest} + {self._length + self.lateness}L <= {mark}L"

    def partials(self, rows: Sequence[DataFrame], mark: int | None) -> DataFrame:
        """Return the aggregates of every window and group, without windows that are closed for good."""
        placed = self.inputs(rows)
        many = -(-self._length // self._hop)
        if many == 1:
            placed = placed.selectExpr("*", f"{self._newest} AS {START}")
        else:
            placed = placed.selectExpr("*", f"explode(sequence(0L, {many - 1}L)) AS {_STEP}")
            placed = placed.selectExpr("*", f"{self._newest} - {_STEP} * {self._hop}L AS {START}")
            placed = placed.where(f"{START} + {self._length}L > {AT}")
        if mark is not None:
            placed = placed.where(f"{START} + {self._length + self.lateness}L > {mark}L")
        partials = self.partial(placed, START)
        return partials.selectExpr(*self.keys, START, f"{START} + {self._length}L AS {END}",
                               *(fold.name for fold in self.aggregates))  # fmt: skip

    def emitted(self, state: DataFrame, marks: WatermarkChange, number: int) -> DataFrame:
        """Return the windows that the watermark has reached, and groups of earlier ones that the batch touched."""
        closing = state.where("false") if marks.after is None else state.where(f"{END} <= {marks.after}L")
        if marks.before is not None:
            closing = closing.where(f"{END} + {self.lateness}L > {marks.before}L")
        merged = self.merged(closing, START, END)
        if marks.before is not None and self.reopens:
            merged = merged.where(f"{END} > {marks.before}L OR {BATCH} = {number}L")
        return self.finished(merged, *self.times(START, END))

    def compacted(self, state: DataFrame, mark: int | None) -> DataFrame:
        """Return one row for every window and group that can still be emitted."""
        alive = state if mark is None else state.where(f"{END} + {self.lateness}L > {mark}L")
        return self.merged(alive, START, END).select(*state.columns)

    def due(self) -> str:
        """Return the column with the end of the window."""
        return END

    def check_group_limit(self, state: DataFrame, mark: int | None = None) -> None:
        """Raise DataError where a window that can still be emitted has more groups than allowed."""
        if not self.keys:
            return
        alive = state if mark is None else state.where(f"{END} + {self.lateness}L > {mark}L")
        counted = alive.select(START, *self.keys).distinct().groupBy(START).count()
        worst = counted.orderBy("count", START, ascending=False).limit(1).collect()
        if worst and worst[0]["count"] > self.spec.max_groups_per_window:
            start, count = _EPOCH + timedelta(microseconds=worst[0][START]), worst[0]["count"]
            raise self.too_many_groups(
                f"the window that starts at {start.isoformat(sep=' ')} has {count:,} groups", count
            )

    @property
    def _newest(self) -> str:
        """Return SQL for the start of the last window that a row is in."""
        return f"({AT} - pmod({AT}, {self._hop}L))"
