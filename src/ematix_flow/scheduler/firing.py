"""One polling cycle in this process: queue the due jobs, then execute every requested run, upstreams first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from ematix_flow.foundation.errors import LeaseHeld, LeaseLost, RunCancelled, error_facts
from ematix_flow.run_log.protocol import RunLog
from ematix_flow.run_log.records import AttemptState, RunRecord
from ematix_flow.run_log.schedule import Action
from ematix_flow.scheduler.due import Job, SkippedJob
from ematix_flow.scheduler.job_facts import jobs_to_retry, waits_for_retry
from ematix_flow.scheduler.lost_runs import WORKER_GONE, close_lost_runs
from ematix_flow.scheduler.queueing import DueQueue


@dataclass(frozen=True)
class FiredEvent:
    """A job that ran and succeeded."""

    name: str
    result: Any


@dataclass(frozen=True)
class FailedEvent:
    """A job that ran and failed."""

    name: str
    error_message: str
    error_type: str
    attempt_count: int
    gave_up: bool


@dataclass(frozen=True)
class SkippedEvent:
    """A job that was due and did not run."""

    name: str
    reason: str


@dataclass
class RunDueResult:
    """The fired, failed and skipped jobs of one polling cycle."""

    fired: list[FiredEvent] = field(default_factory=list)
    failed: list[FailedEvent] = field(default_factory=list)
    skipped: list[SkippedEvent] = field(default_factory=list)


Work = Callable[[RunRecord], Any]
"""Executes a requested run and records the outcome for its job."""


class RunDueTick:
    """A cycle that runs due jobs until no more can run; independent jobs run in parallel."""

    def __init__(self, jobs: Sequence[Job], run_log: RunLog, work: Work, *, now: datetime, interval: float,
                 report: Callable[[str], None] = lambda _: None, parallel: int = 1) -> None:  # fmt: skip
        self.run_log = run_log
        self.work = work
        self.now = now
        self.report = report
        self.parallel = parallel
        self.result = RunDueResult()
        self._queue = DueQueue(jobs, run_log, interval, report=report)
        self._policies = {job.name: job.retry for job in jobs}

    def run(self) -> RunDueResult:
        """Run each job at most once; requests that remain are left to the next cycle."""
        handled = set[str]()
        for record, state in close_lost_runs(self.run_log, self._policies):
            self._report_failure(record.pipeline, WORKER_GONE, "WorkerLost", state)
            handled.add(record.pipeline)
        self._queue.recover()
        while True:
            ticked = self._queue.tick(self.now, leave=handled)
            waiting = [record for record in self._waiting() if record.pipeline not in handled]
            if not waiting:
                break
            handled |= {record.pipeline for record in waiting}
            self._execute(waiting)
        self._report_skipped(item for item in ticked.skipped if item.name not in handled)
        return self.result

    def _waiting(self) -> list[RunRecord]:
        """Return the oldest requested run of each of these jobs, the oldest first."""
        paused, retried = self.run_log.paused(), jobs_to_retry(self.run_log, self._policies)
        records = dict[str, RunRecord]()
        for record in self.run_log.pending_actions():
            name = record.pipeline
            if name in retried and waits_for_retry(record):
                continue
            if name in self._policies and name not in paused and Action.of(record).starts_a_run:
                records.setdefault(name, record)
        return list(records.values())

    def _execute(self, records: Sequence[RunRecord]) -> None:
        if self.parallel == 1 or len(records) == 1:
            for record in records:
                self._one(record)
            return
        with ThreadPoolExecutor(self.parallel, thread_name_prefix="run") as pool:
            list(pool.map(self._one, records))

    def _one(self, record: RunRecord) -> None:
        name = record.pipeline
        try:
            done = self.work(record)
        except (LeaseHeld, LeaseLost, RunCancelled) as error:  # none of them is recorded as a failed attempt
            self._report_skipped([SkippedJob(name, error.what)])
        except Exception as error:
            kind, message = error_facts(error)
            gave_up = self._policies[name].gives_up(record.attempt, error)
            self._report_failure(name, message, kind, AttemptState(record.attempt, self.now, gave_up))
        else:
            self.result.fired.append(FiredEvent(name, done))

    def _report_failure(self, name: str, message: str, kind: str, state: AttemptState) -> None:
        self.result.failed.append(FailedEvent(name, message, kind, state.attempt_count, state.gave_up))
        self.report(f"failed: {name}: {message}")

    def _report_skipped(self, skipped: Iterable[SkippedJob]) -> None:
        for item in skipped:
            self.result.skipped.append(SkippedEvent(item.name, item.reason))
            self.report(f"skipping: {item.name}: {item.reason}")
