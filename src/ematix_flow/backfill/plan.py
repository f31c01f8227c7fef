"""The plan of a backfill: new windows for time that the interval ledger lacks, and recorded windows not yet done."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

from ematix_flow.backfill.window_policy import WindowPolicy, require_windowed, window_policy_of
from ematix_flow.declare.pipeline import PipelineSpec
from ematix_flow.declare.windows import DataWindow, WindowSize, format_instant, subtract_windows
from ematix_flow.engine.batch.windows import live_window_end
from ematix_flow.foundation.errors import DeclarationError
from ematix_flow.run_log.intervals import planning_lock
from ematix_flow.run_log.protocol import RunLog
from ematix_flow.run_log.schedule import Interval

AGAIN = "redo:"
USUAL_CHUNK = WindowSize(1, "d")
_LONG_AGO = datetime(1, 1, 2, tzinfo=timezone.utc)


@dataclass(frozen=True)
class BackfillRequest:
    """The request of a user; without a start it covers only the open windows of the interval ledger."""

    start: datetime | None = None
    end: datetime | None = None
    chunk: WindowSize | None = None
    resume: bool = False
    redo: bool = False

    def window(self, spec: PipelineSpec, moment: datetime) -> DataWindow | None:
        """Return the requested range, or None for every open window; raise a DeclarationError for an invalid range."""
        start = self.start or (None if self.resume else spec.window_start)
        if start is None:
            if not self.resume:
                raise DeclarationError(
                    "nothing says where the backfill begins", hint="give --from 2026-01-31, or --resume alone"
                )
            return None if self.end is None else DataWindow(_LONG_AGO, self.end)
        last = live_window_end(spec, moment)
        end = self.end or last
        if end > moment:
            raise DeclarationError(
                f"--to {format_instant(end, zone=spec.timezone)} lies ahead: rows may still come",
                hint=f"leave it out to load until {format_instant(last, zone=spec.timezone)}",
            )
        if end <= start:
            shown = f"{format_instant(start, zone=spec.timezone)} to {format_instant(end, zone=spec.timezone)}"
            raise DeclarationError(f"from {shown} there is nothing to load", hint="--to comes after --from")
        return DataWindow(start, end)


@dataclass(frozen=True)
class PlannedWindows:
    """The windows to load, the intervals to write into the ledger first, and the number of windows that are done."""

    windows: tuple[DataWindow, ...]
    record: tuple[Interval, ...]
    done: int


@dataclass(frozen=True)
class BackfillPlan:
    """A backfill that is ready to begin."""

    spec: PipelineSpec
    windows: tuple[DataWindow, ...]
    done: int
    chunk: WindowSize
    policy: WindowPolicy
    overtaken: int = 0
    """The number of windows to load that are older than a window that is done; a merge depends on that order."""

    @property
    def range(self) -> DataWindow | None:
        """Return the range from the first to the last window."""
        return DataWindow(self.windows[0].start, max(item.end for item in self.windows)) if self.windows else None


def plan_windows(
    known: Sequence[Interval],
    requested: DataWindow | None,
    chunk: WindowSize,
    *,
    zone: str | None,
    resume: bool,
    redo: str | None,
) -> PlannedWindows:
    """Return the windows of a request, without I/O; recorded windows keep their edges, so that none overlap.

    `redo` is the repetition id for windows that are already done.
    """
    inside = [item for item in known if requested is None or window_of(item).overlaps(requested)]
    again = [item for item in inside if redo and item.status == "done"]
    fresh: list[DataWindow] = []
    if requested is not None and not resume:
        fresh = subtract_windows(chunk.cut(requested, zone=zone), [window_of(item) for item in known])
    left = [item for item in inside if item.status != "done"]
    record = [Interval(window.start, window.end) for window in fresh]
    record += [Interval(item.start, item.end, run_id=repetition_of(item)) for item in left if item.status == "failed"]
    record += [Interval(item.start, item.end, run_id=redo) for item in again]
    windows = sorted([*fresh, *(window_of(item) for item in (*left, *again))])
    return PlannedWindows(tuple(windows), tuple(record), len(inside) - len(left) - len(again))


def plan_backfill(
    run_log: RunLog, spec: PipelineSpec, order: BackfillRequest, *, moment: datetime, write: bool = True
) -> BackfillPlan:
    """Return the windows to load; with `write`, record them in the interval ledger, which every worker reads."""
    require_windowed(spec)
    requested, chunk = order.window(spec, moment), order.chunk or spec.window_size or USUAL_CHUNK
    policy = window_policy_of(spec)

    def planned() -> tuple[PlannedWindows, list[Interval]]:
        known = run_log.intervals(spec.name)
        redo = f"{AGAIN}{secrets.token_hex(4)}" if order.redo else None
        return plan_windows(known, requested, chunk, zone=spec.timezone, resume=order.resume, redo=redo), known

    if write:
        with planning_lock(run_log, spec.name):
            windows, known = planned()
            if windows.record:
                run_log.record_intervals(spec.name, windows.record)
    else:
        windows, known = planned()
    newest = max((item.end for item in known if item.status == "done"), default=None)
    overtaken = sum(newest is not None and window.end < newest for window in windows.windows)
    return BackfillPlan(spec, windows.windows, windows.done, chunk, policy, overtaken)


def window_of(interval: Interval) -> DataWindow:
    """Return the window of an interval."""
    return DataWindow(interval.start, interval.end)


def run_id_of(interval: Interval) -> str:
    """Return the id of the run that loaded the window or failed to; empty if unknown."""
    return "" if repetition_of(interval) else interval.run_id or ""


def repetition_of(interval: Interval) -> str | None:
    """Return the repetition id of a window; None for its first load."""
    return interval.run_id if interval.run_id and interval.run_id.startswith(AGAIN) else None
