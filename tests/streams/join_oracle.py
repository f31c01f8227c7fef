"""What a join of two streams gives, row by row in plain Python: buffers that are searched, evicted and told of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ematix_flow.declare.streams.parts import Join
from ematix_flow.streaming.state.operator import WatermarkChange

Pair = tuple[int | None, int | None]


@dataclass(frozen=True)
class Arrival:
    """One row of a source: `number` says which one it is."""

    side: str
    key: int | None
    at: int
    number: int


@dataclass
class Clock:
    """The watermark of two sources: as far as the slower one has come, less what rows may be late; it only grows."""

    lateness: int
    newest: dict[str, int] = field(default_factory=dict)
    mark: int | None = None

    def after(self, rows: Iterable[Arrival]) -> WatermarkChange:
        before = self.mark
        for row in rows:
            self.newest[row.side] = max(self.newest.get(row.side, row.at), row.at)
        if len(self.newest) == 2:
            reached = min(self.newest.values()) - self.lateness
            self.mark = reached if before is None else max(before, reached)
        return WatermarkChange(before, self.mark)


@dataclass
class _Waiting:
    row: Arrival
    was_out: bool = False


@dataclass
class Oracle:
    """Takes micro-batches one after the other."""

    join: Join
    buffers: dict[str, list[_Waiting]] = field(default_factory=lambda: {"left": [], "right": []})

    def batch(self, rows: Sequence[Arrival], marks: WatermarkChange) -> Counter[Pair]:
        """What comes out, by the numbers of the rows."""
        given: Counter[Pair] = Counter()
        for row in rows:
            if self._is_gone(row, marks.before):
                continue
            here = _Waiting(row)
            for there in self.buffers["right" if row.side == "left" else "left"]:
                left, right = (here, there) if row.side == "left" else (there, here)
                if self._match(left.row, right.row):
                    given[left.row.number, right.row.number] += 1
                    left.was_out = right.was_out = True
            self.buffers[row.side].append(here)
        for side in ("left", "right"):
            given.update(self._evicted(side, marks.after))
        return given

    def _match(self, left: Arrival, right: Arrival) -> bool:
        low, high = self.join.min_delta_ms, self.join.max_delta_ms
        if low is None or high is None:
            low, high = -self.join.time_window_ms, self.join.time_window_ms
        return left.key is not None and left.key == right.key and low * 1000 <= right.at - left.at <= high * 1000

    def _is_gone(self, row: Arrival, mark: int | None) -> bool:
        far = max(abs(self.join.min_delta_ms or 0), abs(self.join.max_delta_ms or 0), self.join.time_window_ms)
        return mark is not None and mark > row.at + (far + (self.join.allowed_lateness_ms or 0)) * 1000

    def _evicted(self, side: str, mark: int | None) -> Counter[Pair]:
        gone = [waiting for waiting in self.buffers[side] if self._is_gone(waiting.row, mark)]
        self.buffers[side] = [waiting for waiting in self.buffers[side] if not self._is_gone(waiting.row, mark)]
        if self.join.kind not in (f"{side}_outer", "full_outer"):
            return Counter()
        alone = [waiting.row.number for waiting in gone if not waiting.was_out]
        return Counter((number, None) if side == "left" else (None, number) for number in alone)
