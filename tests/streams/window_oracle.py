"""What windows and sessions are, in plain Python: row after row, with everything remembered as it came.

A row is `(key, at, bit)`: its bit is a power of two of its own within the key, so the sum of a group tells which rows it has.
Models give what comes out after each micro-batch as `(key, start, end, rows, bits)`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class Row(NamedTuple):
    key: str | None
    at: int
    bit: int


class Out(NamedTuple):
    key: str | None
    start: int
    end: int
    rows: int
    bits: int


def windows_of(at: int, length: int, hop: int) -> list[int]:
    """The starts of the windows that a moment is in."""
    return [start for start in range(at // hop * hop, at - length, -hop) if start <= at < start + length]


def all_windows(rows: Iterable[Row], length: int, hop: int) -> set[Out]:
    """Every window of rows of which none is late."""
    found: dict[tuple[str | None, int], list[Row]] = defaultdict(list)
    for row in rows:
        for start in windows_of(row.at, length, hop):
            found[row.key, start].append(row)
    return {_out(members, start, start + length) for (_, start), members in found.items()}


def all_sessions(rows: Iterable[Row], gap: int, cap: int) -> set[Out]:
    """Every session of rows of which none is behind the watermark: one walk in the order of time."""
    found, chains = set(), defaultdict(list)
    for row in sorted(rows, key=lambda row: row.at):
        mine = chains[row.key]
        if not mine or row.at - mine[-1][-1].at >= gap:
            mine.append([])
        mine[-1].append(row)
    for chain in (chain for mine in chains.values() for chain in mine):
        anchor = chain[0].at
        pieces = defaultdict(list)
        for row in chain:
            pieces[(row.at - anchor) // cap].append(row)
        for number, members in pieces.items():
            end = min(members[-1].at + gap, anchor + (number + 1) * cap)
            found.add(_out(members, members[0].at, end))
    return found


def _out(members: Sequence[Row], start: int, end: int) -> Out:
    return Out(members[0].key, start, end, len(members), sum(row.bit for row in members))


@dataclass
class WindowModel:
    """Tumbling and hopping windows, batch after batch."""

    length: int
    hop: int
    lateness: int | None = None
    """None drops what comes after a window has come out."""
    groups: dict[tuple[str | None, int], list[Row]] = field(default_factory=lambda: defaultdict(list))
    out: set[tuple[str | None, int]] = field(default_factory=set)
    late: int = 0

    def step(self, rows: Iterable[Row], before: int | None, after: int) -> set[Out]:
        touched = set()
        for row in rows:
            starts = [start for start in windows_of(row.at, self.length, self.hop) if not self._gone(start, before)]
            self.late += not starts
            for start in starts:
                self.groups[row.key, start].append(row)
                touched.add((row.key, start))
        closed = {place for place in self.groups if place[1] + self.length <= after}
        told = closed & (touched | (closed - self.out))
        self.out |= told
        return {_out(self.groups[place], place[1], place[1] + self.length) for place in told}

    def _gone(self, start: int, mark: int | None) -> bool:
        return mark is not None and start + self.length + (self.lateness or 0) <= mark


class Placed(NamedTuple):
    row: Row
    place: int
    """Where the row counts: its own time, or the watermark of its arrival."""


@dataclass
class SessionModel:
    """Sessions, batch after batch: a row joins every chain that is not over, and what is told is never told again."""

    gap: int
    cap: int
    lateness: int | None = None
    chains: dict[str | None, list[list[Placed]]] = field(default_factory=lambda: defaultdict(list))
    told: set[tuple[frozenset[Placed], int, int]] = field(default_factory=set)
    late: int = 0
    behind: int = 0

    def step(self, rows: Iterable[Row], before: int | None, after: int) -> set[Out]:
        closed = None if before is None else before - (self.lateness or 0)
        if closed is not None:
            for mine in self.chains.values():
                mine[:] = [chain for chain in mine if max(item.row.at for item in chain) + self.gap > closed]
        for row in rows:
            if closed is not None and row.at + self.gap <= closed:
                self.late += 1
            else:
                self.behind += before is not None and row.at < before
                self._join(Placed(row, row.at if closed is None else max(row.at, closed)))
        return {out for mine in self.chains.values() for chain in mine for out in self._due(chain, after, closed)}

    def _join(self, new: Placed) -> None:
        mine, joined = self.chains[new.row.key], [new]
        for chain in list(mine):
            moments = [item.row.at for item in chain]
            if new.row.at < max(moments) + self.gap and min(moments) < new.row.at + self.gap:
                mine.remove(chain)
                joined += chain
        mine.append(joined)

    def _due(self, chain: list[Placed], after: int, closed: int | None) -> Iterable[Out]:
        anchor = min(item.row.at for item in chain)
        reach = max(item.row.at for item in chain) + self.gap
        pieces = defaultdict(list)
        for item in chain:
            pieces[(item.place - anchor) // self.cap].append(item)
        for number, members in pieces.items():
            start = max(min(item.row.at for item in members), anchor + number * self.cap)
            end = min(reach, anchor + (number + 1) * self.cap)
            told = (frozenset(members), start, end)
            if end <= after and (closed is None or end > closed) and told not in self.told:
                self.told.add(told)
                yield _out([item.row for item in members], start, end)
