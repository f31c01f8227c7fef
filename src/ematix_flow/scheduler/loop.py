"""The scheduler's loop as a function, for programs with their own run log and executor."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ematix_flow.alerters.dispatch import Alerts
from ematix_flow.alerters.event import FAILED, AlertEvent
from ematix_flow.executors.protocol import DispatchSpec, Executor
from ematix_flow.foundation.clock import now as clock_now
from ematix_flow.metrics.sinks import NullSink
from ematix_flow.run_log.protocol import RunHistoryStore, RunLog
from ematix_flow.run_log.records import RunRecord
from ematix_flow.scheduler.jobs import declared_jobs
from ematix_flow.scheduler.scheduler import Scheduler, SchedulerSettings

_COUNTED = ("dispatched", "dispatch_failed", "tick_error")


@dataclass(frozen=True)
class DispatchFailedEvent:
    """A worker that could not be started."""

    pipeline: str
    error_type: str
    error_message: str


def run_scheduler(*, module: str, run_log: RunLog, run_log_url: str, executor: Executor,
                  alerter_urls: Sequence[str] | None = None, metrics_url: str | None = None,
                  alerters: Sequence[Any] | None = None, metrics: Any = None, poll_interval_seconds: float = 10,
                  lease_seconds: int = 300, leader_lease_seconds: float = 60, interval_seconds: float = 60,
                  worker_id: str | None = None, history: RunHistoryStore | None = None,
                  max_iterations: int | None = None, now_fn: Callable[[], datetime] | None = None,
                  sleep_fn: Callable[[float], None] | None = None) -> None:  # fmt: skip
    """Fire due jobs of `module` until the process ends, or for `max_iterations` polling cycles.

    Workers open `run_log_url`, which must be the address of `run_log`. `history` is ignored: the run log holds the
    requests.
    """
    importlib.import_module(module)
    alerts, sink = Alerts(tuple(alerters or ())), metrics or NullSink()

    def spec_of(record: RunRecord) -> DispatchSpec:
        return DispatchSpec(record.pipeline, module, lease_seconds=lease_seconds, run_log_url=run_log_url,
                            alerter_urls=tuple(alerter_urls or ()), metrics_url=metrics_url,
                            run_id=record.run_id)  # fmt: skip

    def hear(kind: str, name: str, text: str) -> None:
        if kind in _COUNTED:
            sink.inc_runs(name, kind)
        if kind == "dispatch_failed":
            failed = DispatchFailedEvent(name, "DispatchError", text)
            alerts.notify(AlertEvent(FAILED, name, clock_now(), failed.error_message, failed.error_type))

    settings = SchedulerSettings(poll_interval_seconds, lease_seconds, leader_lease_seconds, interval_seconds,
                        worker_id=worker_id or "")  # fmt: skip
    scheduler = Scheduler(
        declared_jobs(), run_log, executor, spec_of, settings=settings, group=module, on_event=hear,
        clock=now_fn or clock_now,
    )  # fmt: skip
    scheduler.run(max_iterations=max_iterations, sleep=sleep_fn)
