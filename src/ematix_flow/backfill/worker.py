"""One worker of a backfill: claims free windows, loads them, and reports the result of each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from ematix_flow.backfill.plan import repetition_of, window_of
from ematix_flow.backfill.window_policy import WindowPolicy
from ematix_flow.declare.pipeline import PipelineSpec
from ematix_flow.declare.windows import DataWindow
from ematix_flow.engine.batch.result import Result
from ematix_flow.engine.batch.windows import BackfillWindow
from ematix_flow.foundation.clock import now
from ematix_flow.foundation.errors import FlowError, LeaseHeld, RunCancelled
from ematix_flow.foundation.redact import mask
from ematix_flow.run_log import lease
from ematix_flow.run_log.intervals import IntervalLease
from ematix_flow.run_log.protocol import RunLog
from ematix_flow.run_log.schedule import Interval

DONE, FAILED = "done", "failed"
SECONDS_BETWEEN_LOOKS = 1.0
_SECONDS_OF_A_LOOK = 10.0  # a long ledger is not read again for every window
_ALIKE_IN_EVERY_WINDOW = (2, 3, 5)  # exit codes: names, declarations and statements, connections

Load = Callable[[BackfillWindow, int], Result]
"""Loads a window; the second argument is the attempt, counted from 1."""


@dataclass(frozen=True)
class WindowResult:
    """The result of one window."""

    window: DataWindow
    status: str
    rows: int = 0
    seconds: float = 0.0
    run_id: str = ""
    error: str | None = None
    where: str | None = None
    hint: str | None = None
    is_hopeless: bool = False
    """Whether every other window would fail with the same error."""

    def to_dict(self) -> dict[str, Any]:
        """Return all fields, ready for JSON."""
        return {**asdict(self), "window": str(self.window), "seconds": round(self.seconds, 3)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> WindowResult:
        """Return the result that `to_dict()` wrote."""
        return cls(**{**data, "window": DataWindow.parse(data["window"])})


def free_windows(
    windows: Sequence[DataWindow], ledger: Mapping[DataWindow, Interval], *, in_order: bool, moment: datetime
) -> tuple[list[DataWindow], bool]:
    """Return the windows that may be claimed now, and whether windows held by other workers may become free later.

    A window that has failed since the plan is left to the next backfill; in order, so are all windows after it.
    """
    free: list[DataWindow] = []
    is_waiting = False
    for window in windows:
        known = ledger.get(window)
        status = known.status if known is not None else "planned"
        is_held = known is not None and known.is_held(moment)
        if status == "planned" or (status == "running" and not is_held):
            free.append(window)
        is_waiting = is_waiting or is_held
        if in_order and status != DONE:
            break
    return free, is_waiting


@dataclass
class BackfillWorker:
    """A worker that loads windows until none is free that this backfill has not tried."""

    spec: PipelineSpec
    run_log: RunLog
    windows: Sequence[DataWindow]
    policy: WindowPolicy
    load: Load
    on_result: Callable[[WindowResult], None] = lambda _: None
    report: Callable[[str], None] = lambda _: None
    is_over: Callable[[], bool] = lambda: False
    """Returns whether to stop; called between windows."""

    def run(self) -> None:
        """Load windows until each is done, has failed, or is held by another worker."""
        is_first = True
        while not self.is_over():
            ledger = {window_of(item): item for item in self.run_log.intervals(self.spec.name)}
            free, is_waiting = free_windows(self.windows, ledger, in_order=self.policy.in_order, moment=now())
            if not free and not is_waiting:
                return
            if not free:
                time.sleep(SECONDS_BETWEEN_LOOKS)
            looked = time.monotonic()
            for window in free:
                known = ledger.get(window)
                result = self._load_if_claimed(window, again=(repetition_of(known) if known else None) or "")
                if result is not None:
                    self.on_result(result)
                    if result.is_hopeless and is_first:
                        return
                    is_first = False
                if self.is_over() or time.monotonic() - looked > _SECONDS_OF_A_LOOK:
                    break

    def _load_if_claimed(self, window: DataWindow, *, again: str) -> WindowResult | None:
        """Load the window with the retries of the pipeline's policy; return None if another worker has claimed it."""
        attempt = 1
        while True:
            with self._alone():
                hold = IntervalLease(self.run_log, self.spec.name, window, again=again)
                if not hold.claim():
                    return None
                result, heals = self._attempted(hold, attempt)
            if result.status == DONE or not heals or attempt >= self.spec.retry.max_attempts:
                return result
            wait = self.spec.retry.wait_after(attempt)
            self.report(f"{window}: {result.error}; trying again in {wait:,.0f} s")
            time.sleep(wait)
            attempt += 1

    def _attempted(self, hold: IntervalLease, attempt: int) -> tuple[WindowResult, bool]:
        began = time.monotonic()
        choice = BackfillWindow(self.spec, hold)
        try:
            done = self.load(choice, attempt)
        except RunCancelled:  # a cancellation ends the whole backfill, not only this window
            raise
        except Exception as error:
            seconds = time.monotonic() - began
            return _failure(hold.window, error, seconds), not isinstance(error, FlowError) or error.retryable
        rows = sum(target.rows_read for target in done.targets)
        return WindowResult(hold.window, DONE, rows, time.monotonic() - began, done.run_id), True

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the pipeline's lease, against live runs and other workers, unless windows may load in parallel."""
        if self.policy.side_by_side:
            yield
            return
        is_reported = False
        with ExitStack() as held:
            while True:
                try:
                    held.enter_context(lease.hold_lease(self.run_log, self.spec.name))
                    break
                except LeaseHeld as error:
                    if not is_reported:
                        self.report(f"waiting: {error.what}")
                        is_reported = True
                    time.sleep(SECONDS_BETWEEN_LOOKS)
            yield


def _failure(window: DataWindow, error: Exception, seconds: float) -> WindowResult:
    message = mask(str(getattr(error, "what", None) or error)) or type(error).__name__
    run_id = str(error.facts.get("run_id", "")) if isinstance(error, FlowError) else ""
    is_hopeless = isinstance(error, FlowError) and error.exit_code in _ALIKE_IN_EVERY_WINDOW and not error.retryable
    where = f"{error.where}   {error.where.text}".rstrip() if isinstance(error, FlowError) and error.where else None
    hint = error.hint if isinstance(error, FlowError) else None
    return WindowResult(window, FAILED, 0, seconds, run_id, message, where, hint, is_hopeless)
