"""The progress of event time: a pure function of the event times that came, when they came, and the clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ematix_flow.declare.streams.parts import Watermark

MILLISECOND = 1_000
"""Moments are microseconds."""
_IDLE_AFTER_MS = 60_000
FUTURE = 3_600_000 * MILLISECOND
"""A row that is further ahead of the clock than this moves no watermark: one wrong clock would make all others late."""


@dataclass(frozen=True)
class EventTimes:
    """The event times of every source, and the watermark."""

    newest: tuple[int | None, ...]
    arrived: tuple[int | None, ...]
    """When the last row of a source came, by the clock; before its first row, when the stream began."""
    mark: int | None = None

    @classmethod
    def of(cls, sources: int) -> EventTimes:
        """Return the times at the beginning."""
        return cls((None,) * sources, (None,) * sources)


def advance_times(times: EventTimes, came: Sequence[int | None], now: int, policy: Watermark | None) -> EventTimes:
    """Return the times after a micro-batch at `now` with these newest event times, None where a source was silent.

    The watermark is what the slowest source has reached, less the lateness. A source that was silent for too long is
    left out; when all of them are silent, event time goes on as the clock does.

    >>> once = advance_times(EventTimes.of(1), [5_000_000], now=10_000_000, policy=Watermark(lateness_ms=1_000))
    >>> once.mark, advance_times(once, [None], now=80_000_000, policy=Watermark(lateness_ms=1_000)).mark
    (4000000, 74000000)
    """
    last_arrival = tuple(
        now if new is not None or old is None else old for old, new in zip(times.arrived, came, strict=True)
    )
    newest = tuple(_later_of(old, new) for old, new in zip(times.newest, came, strict=True))
    reached = _source_watermark(newest, last_arrival, now, policy)
    return EventTimes(newest, last_arrival, _later_of(times.mark, reached))


def _source_watermark(
    newest: Sequence[int | None], last_arrival: Sequence[int | None], now: int, policy: Watermark | None
) -> int | None:
    lateness, idleness = lateness_and_idleness(policy)
    silent = [now - (at if at is not None else now) for at in last_arrival]
    speaking = [at for at, quiet in zip(newest, silent, strict=True) if quiet < idleness]
    if not speaking:
        speaking = [at + quiet for at, quiet in zip(newest, silent, strict=True) if at is not None] or [None]
    known = [at for at in speaking if at is not None]
    return min(known) - lateness if len(known) == len(speaking) else None


def wake_time(times: EventTimes, due: int | None, policy: Watermark | None) -> int | None:
    """Return the clock time at which silence alone brings the watermark to `due`; None where it never does."""
    if due is None:
        return None
    lateness, idleness = lateness_and_idleness(policy)
    spoken = [
        last_arrival + max(idleness, due + lateness - newest if newest is not None else 0)
        for newest, last_arrival in zip(times.newest, times.arrived, strict=True)
        if last_arrival is not None
    ]
    return max(spoken, default=None)


def lateness_and_idleness(policy: Watermark | None) -> tuple[int, int]:
    """Return the lateness of rows, and the silence after which a source is idle, in microseconds."""
    lateness = policy.lateness_ms if policy is not None and policy.lateness_ms is not None else 0
    idleness = (
        policy.source_idleness_ms if policy is not None and policy.source_idleness_ms is not None else _IDLE_AFTER_MS
    )
    return lateness * MILLISECOND, idleness * MILLISECOND


def _later_of(one: int | None, other: int | None) -> int | None:
    return max((at for at in (one, other) if at is not None), default=None)
