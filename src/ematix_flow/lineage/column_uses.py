"""The use of a column by another: directly, or by deciding which rows are returned."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

DIRECT, INDIRECT = "DIRECT", "INDIRECT"
IDENTITY, TRANSFORMATION, AGGREGATION = "IDENTITY", "TRANSFORMATION", "AGGREGATION"
JOIN, GROUP_BY, FILTER, SORT, WINDOW, CONDITIONAL = "JOIN", "GROUP_BY", "FILTER", "SORT", "WINDOW", "CONDITIONAL"
_RANK = {IDENTITY: 0, TRANSFORMATION: 1, AGGREGATION: 2}


@dataclass(frozen=True, order=True)
class ColumnUse:
    """A column of a table, and the way in which it is used."""

    table: tuple[str, ...]
    """The parts of the table's name, as the statement writes it."""
    column: str
    type: str = DIRECT
    subtype: str = IDENTITY
    masking: bool = False
    """Whether the value is no longer recognisable, as after hashing."""

    def within(self, outer: ColumnUse) -> ColumnUse:
        """Return this use inside another expression around it."""
        masking = self.masking or outer.masking
        if self.type == INDIRECT:
            return replace(self, masking=masking)
        if outer.type == INDIRECT:
            return replace(self, type=INDIRECT, subtype=outer.subtype, masking=masking)
        stronger = max(self.subtype, outer.subtype, key=lambda word: _RANK[word])
        return replace(self, subtype=stronger, masking=masking)


Uses = frozenset[ColumnUse]
NOTHING: Uses = frozenset()


def combined(parts: Iterable[Uses | None], *, subtype: str) -> Uses | None:
    """Return all uses of several expressions inside one; None if those of one of them are unknown."""
    collected: set[ColumnUse] = set()
    for uses in parts:
        if uses is None:
            return None
        collected |= around(uses, subtype=subtype)
    return frozenset(collected)


def around(uses: Iterable[ColumnUse], *, type: str = DIRECT, subtype: str = IDENTITY, masking: bool = False) -> Uses:  # noqa: A002
    """Return the uses with one more expression around them."""
    outer = ColumnUse((), "", type, subtype, masking)
    return frozenset(use.within(outer) for use in uses)
