"""The decision which jobs are due: a pure function of the declarations, the history and the current time.

Every decision is a value with its reason; nothing here reads a store, starts a run or reads the clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from ematix_flow.declare.retry import RetryPolicy
from ematix_flow.declare.workflow import TriggerOp
from ematix_flow.run_log.records import AttemptState, from_text, to_text
from ematix_flow.scheduler.cron import fire_between
from ematix_flow.scheduler.triggers import satisfied_at

CRON, RETRY, AFTER, WAIT, MESSAGE = "cron", "retry", "after", "wait", "message"


@dataclass(frozen=True)
class Job:
    """One pipeline with the properties that the scheduler needs."""

    name: str
    schedule: str | None = None
    zone: str | None = None
    depends_on: tuple[str, ...] = ()
    upstream_freshness_secs: float | None = None
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    trigger: TriggerOp | None = None
    """The successes of other jobs that fire this one."""
    slot: str | None = None
    """A slot that is due regardless of the current time."""


@dataclass(frozen=True)
class JobFacts:
    """The facts about jobs from the run log, by job name."""

    succeeded: Mapping[str, datetime] = field(default_factory=dict)
    """The time of a job's last success."""
    fired: Mapping[str, str] = field(default_factory=dict)
    """The cron slot that a job fired last, as text."""
    waiting: Mapping[str, str] = field(default_factory=dict)
    """The cron slot with which a job was last recorded as waiting."""
    triggered: Mapping[str, str] = field(default_factory=dict)
    """The trigger slot (successes of other jobs) that a job fired last."""
    attempts: Mapping[str, AttemptState] = field(default_factory=dict)
    paused: Mapping[str, str] = field(default_factory=dict)
    """Paused jobs, with the user who paused them."""
    running: frozenset[str] = frozenset()


@dataclass(frozen=True)
class DueJob:
    """A job to run, and the slot, which may be fired only once."""

    name: str
    slot: str
    attempt: int = 1
    clears_attempts: bool = False
    """Whether failures of the previous slot are cleared because a new slot begins."""


@dataclass(frozen=True)
class SkippedJob:
    """A job that is due and does not run, with the reason; `waits_for` names the slot that stays due."""

    name: str
    reason: str
    waits_for: str | None = None


Decision = DueJob | SkippedJob


def decide_due(jobs: Sequence[Job], known: JobFacts, *, now: datetime, interval: float) -> list[Decision]:
    """Return a decision for every due job, in the order of the jobs; upstreams must come before their downstreams.

    A due job that is blocked by an upstream which is itself due is skipped with its slot in `waits_for`, and stays due.
    """
    decided: list[Decision] = []
    unsettled = set(known.running)
    for job in jobs:
        decision = _decide(job, known, unsettled, now=now, interval=interval)
        if decision is None:
            continue
        decided.append(decision)
        if isinstance(decision, DueJob) or decision.waits_for is not None:
            unsettled.add(job.name)
    return decided


def cron_slot(fired: datetime) -> str:
    """Return the slot key of a cron fire time.

    >>> from datetime import timezone
    >>> cron_slot(datetime(2026, 11, 16, 3, tzinfo=timezone.utc))
    'cron:2026-11-16T03:00:00Z'
    """
    return f"{CRON}:{to_text(fired)[:19]}Z"


def _decide(job: Job, known: JobFacts, unsettled: set[str], *, now: datetime, interval: float) -> Decision | None:
    slot = _new_slot(job, known, now=now, interval=interval)
    state = known.attempts.get(job.name)
    if slot is None and (state is None or state.attempt_count == 0):
        return None
    if job.name in known.paused:
        return (
            SkippedJob(job.name, f"paused by {known.paused[job.name] or 'an unknown user'}")
            if slot is not None
            else None
        )
    if job.name in known.running:
        return SkippedJob(job.name, "still running", waits_for=slot) if slot is not None else None
    if slot is None and state is not None:
        return _retried(job, known, state, unsettled, now=now)
    blocked = _blocked(job, known, unsettled, now=now)
    if blocked is not None:
        return SkippedJob(job.name, blocked, waits_for=slot)
    return DueJob(job.name, str(slot), clears_attempts=state is not None)


def _new_slot(job: Job, known: JobFacts, *, now: datetime, interval: float) -> str | None:
    """Return the slot that is due and was never fired; None if there is none."""
    if job.slot is not None:
        return job.slot if job.slot != known.fired.get(job.name) else None
    if job.trigger is not None:
        before = known.triggered.get(job.name)
        since = from_text(before.partition(":")[2]) if before else None
        at = satisfied_at(job.trigger, known.succeeded, since=since)
        if at is not None:
            return f"{AFTER}:{to_text(at)}"
    if job.schedule is None:
        return None
    fired = fire_between(job.schedule, now - timedelta(seconds=interval), now, zone=job.zone)
    fresh = cron_slot(fired) if fired is not None else None
    waited = known.waiting.get(job.name)
    best = max((slot for slot in (fresh, waited) if slot is not None), default=None)
    return best if best is not None and best > known.fired.get(job.name, "") else None


def _retried(
    job: Job, known: JobFacts, state: AttemptState, unsettled: Iterable[str], *, now: datetime
) -> Decision | None:
    policy, tried = job.retry, state.attempt_count
    if state.gave_up or tried >= policy.max_attempts:
        if not policy.explicit:
            return None
        return SkippedJob(job.name, f"gave up after {tried} retry attempts (max_attempts={policy.max_attempts})")
    eligible = state.last_attempt_at + timedelta(seconds=policy.wait_after(tried, of=job.name))
    if now < eligible:
        reason = f"retry backoff (attempt {tried}/{policy.max_attempts}; next eligible at {to_text(eligible)[:19]}Z)"
        return SkippedJob(job.name, reason)
    blocked = _blocked(job, known, unsettled, now=now)
    if blocked is not None:
        return SkippedJob(job.name, blocked)
    of = known.fired.get(job.name) or f"{CRON}:{to_text(state.last_attempt_at)[:19]}Z"
    return DueJob(job.name, f"{RETRY}:{of}#{tried + 1}", attempt=tried + 1)


def _blocked(job: Job, known: JobFacts, unsettled: Iterable[str], *, now: datetime) -> str | None:
    """Return the reason why upstreams block the job; None if all have succeeded recently enough."""
    missing = []
    for upstream in job.depends_on:
        done = known.succeeded.get(upstream)
        limit = job.upstream_freshness_secs
        is_old = done is None or (limit is not None and now - done > timedelta(seconds=limit))
        if is_old or upstream in unsettled or upstream in known.attempts:
            missing.append(upstream)
    return f"upstream not fresh: {','.join(missing)}" if missing else None
