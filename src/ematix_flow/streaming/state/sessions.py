"""Sessions: rows of one key whose event times follow each other in less than a gap, and never longer than a cap.

Rows that follow each other are a chain. It is cut every cap, counted from its first row, and each piece is a session.
A session ends a gap after its last row, or where its piece ends, and is emitted when the watermark reaches that end.

The cuts are final only when no earlier row can come any more, and a partial aggregate cannot be cut. So partials stay
as fine as rows, by their moment, until compaction merges those that are in one piece whatever may still come: all of
a piece once the first row of its chain is settled, before that all that is less than a cap after the earliest row
that can come. Thus the same rows give the same sessions in any order and any batching, as long as none is behind the
watermark.

A row behind the watermark, but not late, still counts. It joins sessions that are open at the watermark, never
emitted ones: its chain and its piece are found as if it were at the watermark of its arrival (`_flow_from`). If its
own piece was emitted already, it counts in the next, whose window then starts where the piece does. So which of those
rows are joined depends on when they came, but no row is lost or counted twice, and the time of compaction makes no
difference.

Emitted pieces are kept as one row without values as long as their chain goes on: it holds the place of the cuts, and
the end of the chain so far. With `late_data="reopen"` all that is stated here about the watermark holds for the watermark
less the allowed lateness; emitted sessions are kept that long, and emitted again when a row joins them, moves the
cuts of their chain, or makes one chain of two. The id is that of the earliest start, so sessions that become one
leave an id behind which is not emitted again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ematix_flow.sql.spark_text import quote
from ematix_flow.streaming.state.grouping import END, START, GroupedOperator, micros
from ematix_flow.streaming.state.operator import AT, BATCH, WatermarkChange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LAST = "_flow_last"
"""The last row of a partial; its first is `START`."""
_FROM = "_flow_from"
"""Where a partial is taken to begin: at its first row, or at the watermark of that row's arrival."""
_CHAIN, _ANCHOR, _REACH, _PIECE, _MOVED = (
    "_flow_chain", "_flow_anchor", "_flow_reach", "_flow_piece", "_flow_moved",
)  # fmt: skip
_GONE = -1


class SessionOperator(GroupedOperator):
    """The operator of session windows; no partial in the state spans a cut."""

    @property
    def _gap(self) -> int:
        return micros(self.spec.gap_ms)

    @property
    def _cap(self) -> int:
        return micros(self.spec.max_session_duration_ms)

    def late(self, mark: int) -> str:
        """Return SQL for whether a session of the row alone would be closed for good."""
        return f"{AT} + {self._gap + self.lateness}L <= {mark}L"

    def partials(self, rows: Sequence[DataFrame], mark: int | None) -> DataFrame:
        """Return the aggregates of every key and moment."""
        begins = AT if mark is None else f"greatest({AT}, {mark - self.lateness}L)"
        placed = self.inputs(rows).selectExpr("*", f"{begins} AS {_FROM}")
        return self.partial(placed, _FROM, **{START: f"min({AT})", _LAST: f"max({AT})"})

    def emitted(self, state: DataFrame, marks: WatermarkChange, number: int) -> DataFrame:
        """Return the sessions that the watermark has reached, and earlier ones that the micro-batch changed."""
        placed = self._placed(state, number)
        closing = placed.where("false") if marks.after is None else placed.where(f"{END} <= {marks.after}L")
        if marks.before is not None:
            closing = closing.where(f"{END} + {self.lateness}L > {marks.before}L")
        begins = f"greatest(min({START}), min({_ANCHOR}) + {_PIECE} * {self._cap}L)"
        merged = self.merged(closing, _CHAIN, _PIECE, END, _MOVED, **{START: begins})
        if marks.before is not None and self.reopens:
            merged = merged.where(f"{END} > {marks.before}L OR {BATCH} = {number}L OR {_MOVED}")
        named = f"{self._id} AS {quote(self.spec.session_id_column)}"
        return self.finished(merged, *self.times(START, END), named)

    def compacted(self, state: DataFrame, mark: int | None) -> DataFrame:
        """Return partials of chains that go on, as few as possible; of closed pieces only their place."""
        spans = {START: f"min({START})", _LAST: f"max({_LAST})"}
        if mark is None:
            return self.merged(state, _FROM, **spans).select(*state.columns)
        closed = mark - self.lateness
        alive = self._placed(state).where(f"{_REACH} > {closed}L")
        earliest = f"least(min({START}) OVER (PARTITION BY {self._by}), {closed - self._gap}L)"
        slot = (
            f"CASE WHEN {END} <= {closed}L THEN {_GONE} WHEN {_ANCHOR} + {self._gap}L <= {closed}L THEN {_PIECE} "
            f"WHEN {_FROM} < {earliest} + {self._cap}L THEN 0 END"
        )
        alive = alive.selectExpr("*", f"{slot} AS _flow_slot")
        values = {
            fold.name: f"CASE WHEN _flow_slot = {_GONE} THEN NULL ELSE {fold.name} END" for fold in self.aggregates
        }
        alive = alive.selectExpr(
            *self.keys, START, _LAST, BATCH, _CHAIN, "_flow_slot", f"{_FROM} AS _flow_old_from",
            f"CASE WHEN _flow_slot IS NULL THEN {_FROM} END AS _flow_alone",
            *(f"{sql} AS {name}" for name, sql in values.items()),
        )  # fmt: skip
        merged = self.merged(alive, _CHAIN, "_flow_slot", "_flow_alone", **spans, **{_FROM: "min(_flow_old_from)"})
        return merged.select(*state.columns)

    def due(self) -> str:
        """Return SQL for when a session is due: a gap after its last row, or at a cut.

        A cut is exact where its piece is one partial that begins the chain; else the session may be emitted up to a gap
        later when no rows come.
        """
        return f"least({_LAST} + {self._gap}L, {START} + {self._cap}L)"

    def check_group_limit(self, state: DataFrame, mark: int | None = None) -> None:
        """Raise DataError where more sessions than allowed are not emitted by the watermark."""
        placed = self._placed(state)
        waiting = placed if mark is None else placed.where(f"{END} > {mark}L")
        count = waiting.select(*self.keys, _CHAIN, _PIECE).distinct().count()
        if count > self.spec.max_groups_per_window:
            raise self.too_many_groups(f"{count:,} sessions are open", count)

    @property
    def _by(self) -> str:
        return ", ".join(self.keys)

    @property
    def _id(self) -> str:
        """Return SQL for a text that is the same for the same key and start, whatever the time zone of the session."""
        options = "'timeZone', 'UTC', 'timestampFormat', 'yyyy-MM-dd HH:mm:ss.SSSSSS', 'timestampNTZFormat', 'yyyy-MM-dd HH:mm:ss.SSSSSS'"
        return f"md5(to_json(struct({self._by}, {START}), map({options})))"

    def _placed(self, state: DataFrame, number: int | None = None) -> DataFrame:
        """Return partials with their chain, its first and last moment, their piece, its end, and whether micro-batch
        `number` moved the cuts. Everything is by key, so rows are shuffled once."""
        chains = state.selectExpr("*", f"{self._opens()} AS _flow_opens")
        old = f"{BATCH} < {number}L"
        if number is not None and self.reopens:
            chains = chains.selectExpr("*", f"{old} AND {self._opens(old)} AS _flow_opened")
            moved = (
                f"count_if(_flow_opened) OVER chain > 1 "
                f"OR coalesce(min(CASE WHEN {old} THEN {START} END) OVER chain > min({START}) OVER chain, false)"
            )
        else:
            moved = "false"
        passed = f"OVER (PARTITION BY {self._by} ORDER BY {_FROM} ROWS UNBOUNDED PRECEDING)"
        chains = chains.selectExpr("*", f"count_if(_flow_opens) {passed} AS {_CHAIN}")
        whole = f"OVER (PARTITION BY {self._by}, {_CHAIN})"
        placed = chains.selectExpr(
            "*", f"min({START}) {whole} AS {_ANCHOR}", f"max({_LAST}) {whole} + {self._gap}L AS {_REACH}",
            f"{moved.replace('OVER chain', whole)} AS {_MOVED}",
        )  # fmt: skip
        placed = placed.selectExpr("*", f"({_FROM} - {_ANCHOR}) DIV {self._cap}L AS {_PIECE}")
        return placed.selectExpr("*", f"least({_REACH}, {_ANCHOR} + ({_PIECE} + 1) * {self._cap}L) AS {END}")

    def _opens(self, among: str = "true") -> str:
        """Return SQL for whether a partial begins a chain among those that match: no earlier one reaches up to it."""
        before = f"OVER (PARTITION BY {self._by} ORDER BY {_FROM} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
        reach = f"max(CASE WHEN {among} THEN {_LAST} END) {before} + {self._gap}L"
        return f"coalesce({_FROM} >= {reach}, true)"
