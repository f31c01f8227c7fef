"""The window that a run loads: a given one, or the next one of the interval ledger, claimed when first needed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from ematix_flow.declare.pipeline import PipelineSpec
from ematix_flow.declare.windows import DataWindow, format_instant, parse_instant
from ematix_flow.engine.batch.result import TargetResult
from ematix_flow.foundation.clock import now
from ematix_flow.foundation.errors import FlowError, LeaseHeld, PlanError, RunFailed
from ematix_flow.foundation.redact import mask
from ematix_flow.run_log.intervals import IntervalLease, planning_lock

if TYPE_CHECKING:
    from ematix_flow.run_log.protocol import RunLog
    from ematix_flow.run_log.records import RunRecord
    from ematix_flow.run_log.schedule import Interval

_CRON_SLOT = re.compile(r"cron:(\S+?Z)")


class WindowChoice:
    """The window of a preview: the last complete one, which is not claimed in the interval ledger."""

    is_backfill = False
    """Whether a backfill already holds the lease, so that the run claims nothing."""
    _at: datetime | None = None
    is_behind = False
    """Whether an earlier run left the window unfinished, so that a later window follows it."""

    def __init__(self, spec: PipelineSpec) -> None:
        self.spec = spec
        self._hold: IntervalLease | None = None
        self._record_extras: dict[str, Any] = {}

    def add_to_record(self, extras: dict[str, Any]) -> None:
        """Write the window into the extras of the run's record, as soon as one is claimed."""
        self._record_extras = extras
        if self._hold is not None:
            extras["window"] = str(self._hold.window)

    def claim(self) -> DataWindow | None:
        """Return the window to load; None when everything until now is loaded."""
        check_window_keywords(self.spec)
        end = live_window_end(self.spec, now())
        size = self.spec.window_size
        start = size.floor(end - timedelta(microseconds=1), zone=self.spec.timezone) if size else end - timedelta(1)
        return DataWindow(start, end)

    @property
    def window(self) -> DataWindow | None:
        """Return the claimed window, None if there is none."""
        return self._hold.window if self._hold is not None else None

    @property
    def text(self) -> str | None:
        """Return the claimed window as text, None if there is none."""
        return str(self._hold.window) if self._hold is not None else None

    @property
    def stream(self) -> str:
        """Return the claimed window as written in commit tokens, empty if there is none."""
        if self._hold is None:
            return ""
        return f"{self._hold.window}#{self._hold.again}" if self._hold.again else str(self._hold.window)

    def with_watermark(self, target: TargetResult) -> TargetResult:
        """Return the target's result with the watermark from the interval ledger, if there is one."""
        return target

    def nothing_new(self) -> dict[str, Any]:
        """Return the result value of a run that has nothing to load."""
        until = format_instant(live_window_end(self.spec, self._at or now()), zone=self.spec.timezone)
        return {"note": f"nothing new: loaded until {until}", "loaded_until": until}

    @contextmanager
    def recorded_outcome(self, run_id: str) -> Iterator[None]:
        """Record in the interval ledger how the block ended, if a window was claimed inside."""
        try:
            yield
        except BaseException as error:
            if self._hold is not None:
                if isinstance(error, FlowError):
                    error.facts.setdefault("window", str(self._hold.window))
                message = "interrupted" if isinstance(error, KeyboardInterrupt) else str(getattr(error, "what", error))
                self._hold.failed(mask(message) or type(error).__name__, run_id)
            raise
        self.done(run_id)

    def done(self, run_id: str) -> None:
        """Record the window as loaded; another one may be claimed after it."""
        if self._hold is not None:
            self._hold.done(run_id)
            self._hold, self.is_behind = None, False


class BackfillWindow(WindowChoice):
    """A window that a backfill has claimed."""

    is_backfill = True

    def __init__(self, spec: PipelineSpec, hold: IntervalLease) -> None:
        super().__init__(spec)
        self._hold = hold

    def claim(self) -> DataWindow | None:
        return self.window


class LiveWindow(WindowChoice):
    """The window from the end of the interval ledger until now."""

    def __init__(self, spec: PipelineSpec, run_log: RunLog | None, *, at: datetime | None = None) -> None:
        super().__init__(spec)
        self._run_log = run_log
        self._at = at

    def claim(self) -> DataWindow | None:
        if self._hold is None:
            check_window_keywords(self.spec)
            self._hold = self._next()
            self.add_to_record(self._record_extras)
        return self.window

    def with_watermark(self, target: TargetResult) -> TargetResult:
        if self._hold is None or target.error:
            return target
        return replace(target, watermark=self._hold.window.end.isoformat(sep=" "))

    def _next(self) -> IntervalLease | None:
        log, name = self._run_log, self.spec.name
        if log is None:
            raise RunFailed(
                f"{name} takes its window from the ledger in the run log, and there is no run log",
                hint="leave out --no-run-log, or make the run log reachable",
            )
        with planning_lock(log, name):
            at = now()
            end, begin = live_window_end(self.spec, self._at or at), self.spec.window_start
            window, self.is_behind = next_live_window(log.intervals(name), begin=begin, end=end, moment=at)
            if window is None:
                return None
            hold = IntervalLease(log, name, window)
            if not hold.claim():
                raise LeaseHeld(f"the window {window} of {name} is being loaded", hint="wait for it: flow gaps " + name)
        return hold


def slot_time(requested: RunRecord | None) -> datetime | None:
    """Return the time of a requested run's cron slot, regardless of when a worker starts it; None without one."""
    match = _CRON_SLOT.search(str(requested.extras.get("slot", ""))) if requested is not None else None
    return parse_instant(match[1]) if match is not None else None


def live_window_end(spec: PipelineSpec, at: datetime) -> datetime:
    """Return the end of a live run's window: the last multiple of `window_size`, else the current second."""
    if spec.window_size is not None:
        return spec.window_size.floor(at, zone=spec.timezone)
    return at.replace(microsecond=0)


def next_live_window(
    known: Sequence[Interval], *, begin: datetime | None, end: datetime, moment: datetime
) -> tuple[DataWindow | None, bool]:
    """Return the next window of a live run, and whether an earlier run left it unfinished.

    Intervals in the ledger are loaded or handled by a backfill, so the window begins at the ledger's end. Only the last
    window is repeated when its run failed or crashed: it must keep its bounds, because the target may already have it.
    """
    last = max(known, key=lambda interval: interval.end, default=None)
    if last is not None:
        is_dead = last.status == "running" and not last.is_held(moment)
        if last.status == "failed" or is_dead:
            return DataWindow(last.start, last.end), True
        begin = max(last.end, begin) if begin is not None else last.end
    if begin is None:
        raise PlanError(
            "nothing says where the first window begins",
            hint='declare window_start="2026-01-31", or begin with flow backfill NAME --from 2026-01-31',
        )
    return (DataWindow(begin, end) if begin < end else None), False


def check_window_keywords(spec: PipelineSpec) -> None:
    """Raise PlanError for options that need the whole source, where only a window of it is read."""
    if spec.incremental is not None:
        raise PlanError(
            f"{spec.name} reads by windows and from a watermark",
            where=spec.where,
            hint="leave out watermark_column: the ledger knows what is loaded",
        )
    if any(getattr(load.strategy, "deletes", None) is not None for load in spec.loads):
        raise PlanError(
            f"{spec.name} reads by windows, and handle_deletes would delete all rows of other windows",
            where=spec.where,
            hint="leave out handle_deletes",
        )


def not_windowed_error(spec: PipelineSpec) -> PlanError:
    """Return the error for a pipeline that would read everything for each window."""
    return PlanError(
        f"{spec.name} does not read by windows: every window would be the whole source",
        where=spec.where,
        hint="write WHERE created_at >= {start} AND created_at < {end} into its SQL, or let its function take start and end",
    )
