"""scd2 by event time in plain Python: what the table must be, given every event that ever came."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Any


@dataclass(frozen=True)
class Observation:
    """One event: key, when, the compared value, and a value that is only carried along."""

    key: int
    at: datetime
    value: str | None
    note: str | None = None


def versions(events: Iterable[Observation], winner: Any = None) -> list[tuple[Any, ...]]:
    """(key, value, valid_from, valid_to) of every version; ties at one instant go to whoever `winner` picks."""
    made: list[tuple[Any, ...]] = []
    distinct = sorted(set(events), key=lambda item: (item.key, item.at))
    for key, of_key in groupby(distinct, key=lambda item: item.key):
        runs: list[tuple[str | None, datetime]] = []
        for at, together in groupby(of_key, key=lambda item: item.at):
            tied = list(together)
            chosen = tied[0] if len(tied) == 1 else winner(tied)
            if not runs or runs[-1][0] != chosen.value:
                runs.append((chosen.value, at))
        ends = [start for _, start in runs[1:]] + [None]
        made += [(key, value, start, end) for (value, start), end in zip(runs, ends, strict=True)]
    return made
