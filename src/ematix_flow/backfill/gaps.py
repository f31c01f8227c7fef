"""Loaded and missing data time of a pipeline: the interval ledger as one timeline."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ematix_flow.backfill.plan import run_id_of, window_of
from ematix_flow.declare.pipeline import PipelineSpec
from ematix_flow.declare.windows import DataWindow, merge_windows, subtract_windows
from ematix_flow.engine.batch.windows import live_window_end
from ematix_flow.run_log.schedule import Interval
from ematix_flow.scheduler.cron import last_fire

DONE, GAP = "done", "gap"


@dataclass(frozen=True)
class TimelineSegment:
    """A segment of the timeline: done, running, planned, failed, or a gap that is not planned."""

    window: DataWindow
    state: str
    windows: int = 0
    error: str = ""
    run_id: str = ""
    attempt: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that are set, ready for JSON."""
        start, _, end = str(self.window).partition("/")
        data = {"windows": self.windows, "error": self.error, "run_id": self.run_id, "attempt": self.attempt}
        return {"start": start, "end": end, "state": self.state, **{key: value for key, value in data.items() if value}}


@dataclass(frozen=True)
class Gaps:
    """The whole timeline, in the order of time."""

    pipeline: str
    stretches: tuple[TimelineSegment, ...]

    @property
    def missing(self) -> list[DataWindow]:
        """Return the windows that are neither loaded nor being loaded."""
        return merge_windows(item.window for item in self.stretches if item.state not in (DONE, "running"))

    @property
    def is_known(self) -> bool:
        """Return whether every missing part is in the ledger, so that a resumed backfill loads it."""
        return all(item.state != GAP for item in self.stretches)

    def to_dict(self) -> dict[str, Any]:
        """Return everything, ready for JSON."""
        return {
            "pipeline": self.pipeline,
            "stretches": [item.to_dict() for item in self.stretches],
            "missing": [dict(zip(("start", "end"), str(window).split("/"), strict=True)) for window in self.missing],
        }


def gaps_of(spec: PipelineSpec, known: Sequence[Interval], *, moment: datetime) -> Gaps:
    """Return the timeline from the start of the pipeline's windows to the end of those that should be loaded by now."""
    windows = [window_of(item) for item in known]
    starts = [*(window.start for window in windows), *([spec.window_start] if spec.window_start else [])]
    ends = [window.end for window in windows]
    if spec.schedule is not None:  # data after the last fire is new, not missing
        ends.append(live_window_end(spec, last_fire(spec.schedule, moment, zone=spec.timezone)))
    if not starts or not ends or min(starts) >= max(ends):
        return Gaps(spec.name, ())
    whole = DataWindow(min(starts), max(ends))
    stretches = [TimelineSegment(window, GAP) for window in subtract_windows([whole], windows)]
    for state in (DONE, "planned", "running"):
        ranges = sorted(window_of(item) for item in known if _state(item, moment) == state)
        starts_there = [window.start for window in ranges]
        for window in merge_windows(ranges):
            count = bisect_left(starts_there, window.end) - bisect_left(starts_there, window.start)
            stretches.append(TimelineSegment(window, state, count))
    stretches += [
        TimelineSegment(window_of(item), "failed", 1, item.error or "", run_id_of(item), item.attempt)
        for item in known
        if _state(item, moment) == "failed"
    ]
    return Gaps(spec.name, tuple(sorted(stretches, key=lambda item: (item.window, item.state))))


def _state(interval: Interval, moment: datetime) -> str:
    """Return the state of an interval; a running window whose worker is dead counts as planned."""
    if interval.status == "running" and not interval.is_held(moment):
        return "planned"
    return interval.status
