"""Backfill: past windows, planned in the interval ledger shared with live runs, loaded by any number of workers."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from ematix_flow.backfill.plan import BackfillPlan, BackfillRequest, plan_backfill, run_id_of, window_of
from ematix_flow.backfill.worker import DONE, FAILED, BackfillWorker, Load, WindowResult
from ematix_flow.declare.pipeline import PipelineSpec
from ematix_flow.declare.windows import DataWindow
from ematix_flow.engine.batch import pipeline_run
from ematix_flow.engine.batch.result import Result
from ematix_flow.engine.batch.windows import BackfillWindow
from ematix_flow.foundation.clock import now
from ematix_flow.foundation.errors import RunCancelled
from ematix_flow.run_log.protocol import RunLog


@dataclass(frozen=True)
class FailedWindow:
    """A window that failed to load, with its error."""

    window: DataWindow
    error: str
    run_id: str = ""


@dataclass
class BackfillProgress:
    """The progress of a backfill; may be read at any time."""

    windows: int
    done: int = 0
    failed: int = 0
    rows: int = 0
    failure: WindowResult | None = None
    """The first window that failed."""
    began: float = field(default_factory=time.monotonic)

    def __call__(self, result: WindowResult) -> None:
        """Count one settled window."""
        self.done += result.status == DONE
        self.failed += result.status == FAILED
        self.rows += result.rows
        if result.status == FAILED:
            self.failure = self.failure or result

    @property
    def left(self) -> int:
        """Return the number of windows that are neither loaded nor failed."""
        return max(0, self.windows - self.done - self.failed)

    @property
    def seconds(self) -> float:
        """Return the seconds since the start."""
        return time.monotonic() - self.began

    @property
    def seconds_left(self) -> float | None:
        """Return the estimated seconds left at the rate so far; None before two windows are settled, and at the end."""
        settled = self.done + self.failed
        return self.seconds / settled * self.left if settled > 1 and self.left else None


@dataclass(frozen=True)
class BackfillResult:
    """The outcome of a backfill."""

    pipeline: str
    windows: int
    loaded: int
    done_before: int
    failed: tuple[FailedWindow, ...]
    left: int
    rows: int
    seconds: float
    interrupted: bool = False

    @property
    def is_complete(self) -> bool:
        """Return whether every window is loaded."""
        return self.loaded == self.windows

    def to_dict(self) -> dict[str, Any]:
        """Return all fields, ready for JSON."""
        failed = [
            {"window": str(item.window), "error": item.error, "run_id": item.run_id or None} for item in self.failed
        ]
        return {**asdict(self), "failed": failed, "seconds": round(self.seconds, 3)}


def backfill(spec: PipelineSpec, run_log: RunLog, order: BackfillRequest) -> BackfillResult:
    """Load past windows in this process, one after the other."""
    planned = plan_backfill(run_log, spec, order, moment=now())
    tally = BackfillProgress(len(planned.windows))
    worker = BackfillWorker(
        spec, run_log, planned.windows, planned.policy, window_loader(spec, run_log), on_result=tally
    )
    return execute_backfill(planned, run_log, tally, worker.run)


def execute_backfill(
    planned: BackfillPlan, run_log: RunLog, tally: BackfillProgress, work: Callable[[], None]
) -> BackfillResult:
    """Call `work` and return the outcome as recorded in the interval ledger; an interrupt ends the work early."""
    interrupted = False
    try:
        if planned.windows:
            work()
    except (KeyboardInterrupt, RunCancelled):
        interrupted = True
    return _outcome(planned, run_log, tally, interrupted=interrupted)


def window_loader(spec: PipelineSpec, run_log: RunLog) -> Load:
    """Return a function that loads a window as a separate run."""

    def load(window: BackfillWindow, attempt: int) -> Result:
        return pipeline_run.run(spec, run_log=run_log, attempt=attempt, window=window)

    return load


def _outcome(planned: BackfillPlan, run_log: RunLog, tally: BackfillProgress, *, interrupted: bool) -> BackfillResult:
    wanted = set(planned.windows)
    known = [item for item in run_log.intervals(planned.spec.name) if window_of(item) in wanted]
    failed = [item for item in known if item.status == FAILED]
    loaded = sum(item.status == DONE for item in known)
    return BackfillResult(
        pipeline=planned.spec.name,
        windows=len(wanted),
        loaded=loaded,
        done_before=planned.done,
        failed=tuple(
            FailedWindow(window_of(item), item.error or "the reason was not recorded", run_id_of(item))
            for item in failed
        ),
        left=len(wanted) - loaded - len(failed),
        rows=tally.rows,
        seconds=tally.seconds,
        interrupted=interrupted,
    )
