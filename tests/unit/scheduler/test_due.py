"""What is due, decided from values alone."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import datetime, timedelta, timezone

from ematix_flow.declare.retry import RetryPolicy
from ematix_flow.declare.workflow import AllOf, AnyOf
from ematix_flow.run_log.records import AttemptState
from ematix_flow.scheduler.due import Decision, DueJob, Job, JobFacts, SkippedJob, cron_slot, decide_due

NOW = datetime(2026, 11, 16, 3, 0, 30, tzinfo=timezone.utc)
THREE = NOW.replace(second=0)
SLOT = cron_slot(THREE)
HOURLY = "0 * * * *"


def decided_on(*jobs: Job, known: JobFacts | None = None, now: datetime = NOW) -> list[Decision]:
    return decide_due(jobs, known or JobFacts(), now=now, interval=60)


def test_a_schedule_that_fired_within_the_interval_is_due_and_no_other() -> None:
    assert decided_on(Job("hourly", HOURLY), Job("nightly", "0 2 * * *"), Job("unscheduled")) == [
        DueJob("hourly", SLOT)
    ]


def test_a_slot_that_was_fired_is_not_due_again() -> None:
    assert decided_on(Job("a", HOURLY), known=JobFacts(fired={"a": SLOT})) == []
    assert decided_on(Job("a", HOURLY), known=JobFacts(fired={"a": cron_slot(THREE - timedelta(hours=1))})) == [
        DueJob("a", SLOT)
    ]


def test_a_clock_that_jumps_back_fires_nothing_twice() -> None:
    assert decided_on(Job("a", HOURLY), known=JobFacts(fired={"a": cron_slot(THREE + timedelta(hours=2))})) == []


def test_a_child_waits_for_an_upstream_that_is_due_or_runs_and_its_slot_stays_due() -> None:
    up, child = Job("up", HOURLY), Job("child", HOURLY, depends_on=("up",))
    yesterday = JobFacts(succeeded={"up": THREE - timedelta(days=1)})
    assert decided_on(up, child, known=yesterday) == [
        DueJob("up", SLOT),
        SkippedJob("child", "upstream not fresh: up", waits_for=SLOT),
    ]
    running = JobFacts(succeeded=yesterday.succeeded, fired={"up": SLOT}, running=frozenset({"up"}))
    assert decided_on(up, child, known=running)[0] == SkippedJob("child", "upstream not fresh: up", waits_for=SLOT)
    later = NOW + timedelta(minutes=20)
    done = JobFacts(succeeded={"up": later}, fired={"up": SLOT}, waiting={"child": SLOT})
    assert decided_on(up, child, known=done, now=later) == [DueJob("child", SLOT)]


def test_an_upstream_that_never_succeeded_or_too_long_ago_stops_its_child() -> None:
    child = Job("child", HOURLY, depends_on=("up",), upstream_freshness_secs=3600)
    for known in (JobFacts(), JobFacts(succeeded={"up": NOW - timedelta(hours=2)})):
        (decision,) = decided_on(child, known=known)
        assert isinstance(decision, SkippedJob)
    assert decided_on(child, known=JobFacts(succeeded={"up": NOW - timedelta(minutes=59)})) == [DueJob("child", SLOT)]


def test_a_failed_job_is_tried_again_after_its_backoff_and_gives_up_in_the_end() -> None:
    policy = RetryPolicy(3, "exponential", 60, explicit=True)
    job = Job("a", "0 1 * * *", retry=policy)
    failed = AttemptState(2, NOW - timedelta(seconds=100))
    known = JobFacts(fired={"a": "cron:2026-11-16T01:00:00Z"}, attempts={"a": failed})
    (waiting,) = decided_on(job, known=known)
    assert isinstance(waiting, SkippedJob)
    assert waiting.reason == "retry backoff (attempt 2/3; next eligible at 2026-11-16T03:00:53Z)"  # its own bit longer
    assert decided_on(job, known=known, now=NOW + timedelta(seconds=24)) == [
        DueJob("a", "retry:cron:2026-11-16T01:00:00Z#3", attempt=3)
    ]
    given_up = replace(known, attempts={"a": AttemptState(3, NOW, gave_up=True)})
    (skipped,) = decided_on(job, known=given_up)
    assert skipped == SkippedJob("a", "gave up after 3 retry attempts (max_attempts=3)")


def test_a_new_slot_forgets_that_the_last_one_was_given_up() -> None:
    job = Job("a", HOURLY, retry=RetryPolicy(2, explicit=True))
    known = JobFacts(fired={"a": "cron:2026-11-16T02:00:00Z"}, attempts={"a": AttemptState(2, NOW, gave_up=True)})
    assert decided_on(job, known=known) == [DueJob("a", SLOT, clears_attempts=True)]


def test_a_paused_job_says_who_paused_it() -> None:
    assert decided_on(Job("a", HOURLY), known=JobFacts(paused={"a": "ana"})) == [SkippedJob("a", "paused by ana")]


def test_a_job_that_still_runs_is_not_fired_beside_itself() -> None:
    assert decided_on(Job("a", HOURLY), known=JobFacts(running=frozenset({"a"}))) == [
        SkippedJob("a", "still running", waits_for=SLOT)
    ]


def test_successes_of_others_fire_a_job_once_each_time() -> None:
    first, second = NOW - timedelta(minutes=5), NOW - timedelta(minutes=2)
    both, one = Job("both", trigger=AllOf("a", "b")), Job("one", trigger=AnyOf("a", "b"))
    half = JobFacts(succeeded={"a": first})
    assert [item.name for item in decided_on(both, one, known=half)] == ["one"]
    whole = JobFacts(succeeded={"a": first, "b": second})
    (fire,) = decided_on(both, known=whole)
    assert isinstance(fire, DueJob)
    assert fire.slot == "after:2026-11-16T02:58:30.000000Z"
    assert decided_on(both, known=replace(whole, triggered={"both": fire.slot})) == []
    again = replace(whole, triggered={"both": fire.slot}, succeeded={"a": NOW, "b": second})
    assert decided_on(both, known=again) == []  # b has not succeeded since
    assert decided_on(both, known=replace(again, succeeded={"a": NOW, "b": NOW})) != []


def test_a_thousand_jobs_are_decided_in_well_under_a_second() -> None:
    jobs = [Job(f"j{n}", HOURLY, depends_on=(f"j{n - 1}",) if n else ()) for n in range(1000)]
    known = JobFacts(succeeded={job.name: NOW - timedelta(hours=1) for job in jobs})
    started = time.process_time()
    decisions = decided_on(*jobs, known=known)
    assert time.process_time() - started < 1
    assert [type(item) for item in decisions] == [DueJob, *[SkippedJob] * 999]
