"""Fires what is due, one after the other: upstreams first, children as soon as theirs have succeeded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from ematix_flow.foundation.clock import now as clock_now
from ematix_flow.foundation.errors import FlowError, LeaseHeld
from ematix_flow.foundation.redact import mask
from ematix_flow.orchestrate.due import CRON, RETRY, WAIT, Fire, Job, Known, Skip, decide
from ematix_flow.orchestrate.known import known_by
from ematix_flow.runlog.protocol import RunLog
from ematix_flow.runlog.records import AttemptState
from ematix_flow.runlog.worker import this_worker


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
    """Everything that one tick did."""

    fired: list[FiredEvent] = field(default_factory=list)
    failed: list[FailedEvent] = field(default_factory=list)
    skipped: list[SkippedEvent] = field(default_factory=list)


Work = Callable[[str, int], Any]
"""Runs a job by name; the attempt counts from 1."""


class Firing:
    """One tick in this process."""

    def __init__(self, jobs: Sequence[Job], run_log: RunLog, work: Work, *, now: datetime, interval: float,
                 say: Callable[[str], None] = lambda _: None) -> None:  # fmt: skip
        self.jobs = jobs
        self.run_log = run_log
        self.work = work
        self.now = now
        self.interval = interval
        self.say = say
        self.result = RunDueResult()
        self._policies = {job.name: job.retry for job in jobs}

    def go(self) -> RunDueResult:
        """Fire until nothing that is due can run."""
        known, handled = known_by(self.run_log, self.jobs), set[str]()
        while True:
            decisions = decide(self.jobs, known, now=self.now, interval=self.interval)
            fire = next((item for item in decisions if isinstance(item, Fire) and item.name not in handled), None)
            if fire is None:
                break
            handled.add(fire.name)
            known = self._fire(fire, known)
        for item in decisions:
            if isinstance(item, Skip) and item.name not in handled:
                self._skip(item)
        return self.result

    def _fire(self, fire: Fire, known: Known) -> Known:
        taken = self.run_log.take_slot(fire.name, fire.slot, this_worker())
        kind = fire.slot.partition(":")[0]
        if kind in (CRON, RETRY):
            slot = fire.slot if kind == CRON else known.fired.get(fire.name, "")
            known = replace(known, fired={**known.fired, fire.name: slot})
        else:
            known = replace(known, triggered={**known.triggered, fire.name: fire.slot})
        if not taken:  # somebody else was quicker
            return known
        if fire.clears_attempts:
            self.run_log.clear_attempt_state(fire.name)
            known = replace(known, attempts=_without(known.attempts, fire.name))
        self.say(f"firing: {fire.name} ({fire.slot})")
        try:
            done = self.work(fire.name, fire.attempt)
        except LeaseHeld as error:
            self.result.skipped.append(SkippedEvent(fire.name, error.what))
            return known
        except Exception as error:
            return replace(known, attempts={**known.attempts, fire.name: self._failed(fire, error)})
        self.run_log.clear_attempt_state(fire.name)
        self.result.fired.append(FiredEvent(fire.name, done))
        return replace(
            known,
            succeeded={**known.succeeded, fire.name: clock_now()},
            attempts=_without(known.attempts, fire.name),
        )

    def _failed(self, fire: Fire, error: Exception) -> AttemptState:
        policy = self._policies[fire.name]
        heals = not isinstance(error, FlowError) or error.retryable
        gave_up = policy.explicit and (fire.attempt >= policy.max_attempts or not heals)
        state = AttemptState(fire.attempt, self.now, gave_up)
        self.run_log.record_attempt(fire.name, state)
        said = mask(str(getattr(error, "what", error)))
        self.result.failed.append(FailedEvent(fire.name, said, type(error).__name__, fire.attempt, gave_up))
        self.say(f"failed: {fire.name}: {said}")
        return state

    def _skip(self, item: Skip) -> None:
        if item.waits_for is not None and item.waits_for.startswith(CRON):
            self.run_log.take_slot(item.name, f"{WAIT}:{item.waits_for}", this_worker())
        self.result.skipped.append(SkippedEvent(item.name, item.reason))
        self.say(f"skipping: {item.name}: {item.reason}")


def _without(states: Any, name: str) -> dict[str, AttemptState]:
    return {key: value for key, value in states.items() if key != name}
