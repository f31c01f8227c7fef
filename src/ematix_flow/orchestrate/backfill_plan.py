"""The plan of a backfill: new windows for time that the interval ledger lacks, and recorded windows not yet done."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

from ematix_flow.declare.pipeline import PipelineSpec
from ematix_flow.declare.windows import Chunk, Window, said, without
from ematix_flow.engine.window import live_end
from ematix_flow.foundation.errors import DeclarationError
from ematix_flow.orchestrate.windowed import Manner, manner_of, require_windowed
from ematix_flow.runlog.agenda import Interval
from ematix_flow.runlog.ledger import planning
from ematix_flow.runlog.protocol import RunLog

AGAIN = "redo:"
USUAL_CHUNK = Chunk(1, "d")
_LONG_AGO = datetime(1, 1, 2, tzinfo=timezone.utc)


@dataclass(frozen=True)
class Order:
    """The request of a user; without a start it covers only the open windows of the interval ledger."""

    start: datetime | None = None
    end: datetime | None = None
    chunk: Chunk | None = None
    resume: bool = False
    redo: bool = False

    def window(self, spec: PipelineSpec, moment: datetime) -> Window | None:
        """Return the requested range, or None for every open window; raise a DeclarationError for an invalid range."""
        start = self.start or (None if self.resume else spec.window_start)
        if start is None:
            if not self.resume:
                raise DeclarationError(
                    "nothing says where the backfill begins", hint="give --from 2026-01-31, or --resume alone"
                )
            return None if self.end is None else Window(_LONG_AGO, self.end)
        last = live_end(spec, moment)
        end = self.end or last
        if end > moment:
            raise DeclarationError(
                f"--to {said(end, zone=spec.timezone)} lies ahead: rows may still come",
                hint=f"leave it out to load until {said(last, zone=spec.timezone)}",
            )
        if end <= start:
            shown = f"{said(start, zone=spec.timezone)} to {said(end, zone=spec.timezone)}"
            raise DeclarationError(f"from {shown} there is nothing to load", hint="--to comes after --from")
        return Window(start, end)


@dataclass(frozen=True)
class Planned:
    """The windows to load, the intervals to write into the ledger first, and the number of windows that are done."""

    windows: tuple[Window, ...]
    record: tuple[Interval, ...]
    done: int


@dataclass(frozen=True)
class Plan:
    """A backfill that is ready to begin."""

    spec: PipelineSpec
    windows: tuple[Window, ...]
    done: int
    chunk: Chunk
    manner: Manner
    overtaken: int = 0
    """The number of windows to load that are older than a window that is done; a merge depends on that order."""

    @property
    def range(self) -> Window | None:
        """Return the range from the first to the last window."""
        return Window(self.windows[0].start, max(item.end for item in self.windows)) if self.windows else None


def plan_windows(
    known: Sequence[Interval], asked: Window | None, chunk: Chunk, *, zone: str | None, resume: bool, redo: str | None
) -> Planned:
    """Return the windows of a request, without I/O; recorded windows keep their edges, so that none overlap.

    `redo` is the repetition id for windows that are already done.
    """
    inside = [item for item in known if asked is None or window_of(item).overlaps(asked)]
    again = [item for item in inside if redo and item.status == "done"]
    fresh: list[Window] = []
    if asked is not None and not resume:
        fresh = without(chunk.cut(asked, zone=zone), [window_of(item) for item in known])
    left = [item for item in inside if item.status != "done"]
    record = [Interval(window.start, window.end) for window in fresh]
    record += [Interval(item.start, item.end, run_id=repeats(item)) for item in left if item.status == "failed"]
    record += [Interval(item.start, item.end, run_id=redo) for item in again]
    windows = sorted([*fresh, *(window_of(item) for item in (*left, *again))])
    return Planned(tuple(windows), tuple(record), len(inside) - len(left) - len(again))


def plan(run_log: RunLog, spec: PipelineSpec, order: Order, *, moment: datetime, write: bool = True) -> Plan:
    """Return the windows to load; with `write`, record them in the interval ledger, which every worker reads."""
    require_windowed(spec)
    asked, chunk = order.window(spec, moment), order.chunk or spec.window_size or USUAL_CHUNK
    manner = manner_of(spec)

    def planned() -> tuple[Planned, list[Interval]]:
        known = run_log.intervals(spec.name)
        redo = f"{AGAIN}{secrets.token_hex(4)}" if order.redo else None
        return plan_windows(known, asked, chunk, zone=spec.timezone, resume=order.resume, redo=redo), known

    if write:
        with planning(run_log, spec.name):
            found, known = planned()
            if found.record:
                run_log.record_intervals(spec.name, found.record)
    else:
        found, known = planned()
    newest = max((item.end for item in known if item.status == "done"), default=None)
    overtaken = sum(newest is not None and window.end < newest for window in found.windows)
    return Plan(spec, found.windows, found.done, chunk, manner, overtaken)


def window_of(interval: Interval) -> Window:
    """Return the window of an interval."""
    return Window(interval.start, interval.end)


def run_of(interval: Interval) -> str:
    """Return the id of the run that loaded the window or failed to; empty if unknown."""
    return "" if repeats(interval) else interval.run_id or ""


def repeats(interval: Interval) -> str | None:
    """Return the repetition id of a window; None for its first load."""
    return interval.run_id if interval.run_id and interval.run_id.startswith(AGAIN) else None
