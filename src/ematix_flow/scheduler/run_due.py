"""Runs named pipelines as if their schedules had just fired."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from ematix_flow.alerters.dispatch import Alerts
from ematix_flow.alerters.outages import outages_in_run_log
from ematix_flow.declare import registry
from ematix_flow.declare.connections import Connection as Declared
from ematix_flow.engine.batch import pipeline_run
from ematix_flow.engine.connections.connection import LiveConnection
from ematix_flow.metrics.sinks import NullSink
from ematix_flow.observe.logs import capture_pipeline_logs, is_capture_wanted
from ematix_flow.observe.observers import Observers
from ematix_flow.run_log.memory import InMemoryRunLog
from ematix_flow.run_log.protocol import RunLog
from ematix_flow.run_log.records import RunRecord
from ematix_flow.run_log.urls import from_url
from ematix_flow.scheduler.due import Job, cron_slot
from ematix_flow.scheduler.firing import RunDueResult, RunDueTick
from ematix_flow.scheduler.jobs import declared_jobs
from ematix_flow.scheduler.requested_runs import recorded_attempt

_kept: dict[int, InMemoryRunLog] = {}


def run_due(due: Sequence[str], *, now: datetime, run_log: Any, alerters: Sequence[Any], metrics: Any) -> RunDueResult:
    """Run these pipelines, upstreams first; without a run log, this process keeps successes and failures in memory."""
    names = {registry.get_pipeline(name).spec.name for name in due}
    with _open_run_log(run_log) as log:
        watchers = Observers(
            alerts=Alerts(tuple(alerters), known=outages_in_run_log(log)), metrics=metrics or NullSink()
        )

        def work(record: RunRecord) -> Any:
            with capture_pipeline_logs(record.run_id) if is_capture_wanted() else contextlib.nullcontext():
                return _execute(record, log, watchers, now)

        result = RunDueTick(_jobs(names, log, now), log, work, now=now, interval=1.0).run()
        for event in result.skipped:
            with watchers.complaints.guard("the metrics sink"):
                watchers.metrics.inc_runs(event.name, "skipped")
    return result


def _execute(record: RunRecord, log: RunLog, watchers: Observers, now: datetime) -> Any:
    spec = registry.get_pipeline(record.pipeline).spec
    with (
        recorded_attempt(record, spec, log, now=now),
        watchers.watching(spec, attempt=record.attempt, run_id=record.run_id) as watch,
    ):
        done = pipeline_run.run(spec, run_log=log, requested=record, listener=watch.listener)
        watch.succeeded(done.to_dict())
    return done


def _jobs(names: set[str], log: RunLog, now: datetime) -> list[Job]:
    """Return the jobs; a failed job with a retry policy waits for its backoff, every other is due anew in each call."""
    failing = log.attempt_states()
    slot = f"{cron_slot(now)}/{time.time_ns()}"
    return [
        replace(job, schedule=None, trigger=None, slot=None if job.name in failing and job.retry.explicit else slot)
        for job in declared_jobs()
        if job.name in names
    ]


@contextlib.contextmanager
def _open_run_log(run_log: Any) -> Iterator[RunLog]:
    """Yield the given run log, the one at a URL or connection, or the in-memory one of this process."""
    if run_log is None:
        if registry.age() not in _kept:
            _kept.clear()
        yield _kept.setdefault(registry.age(), InMemoryRunLog())
        return
    if isinstance(run_log, Declared):
        run_log = LiveConnection(run_log)
    address = run_log.dsn() if isinstance(run_log, LiveConnection) else run_log
    if not isinstance(address, str):
        yield run_log
        return
    opened = from_url(address)
    try:
        yield opened
    finally:
        opened.close()
