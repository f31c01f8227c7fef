"""Reads from the run log what decisions about jobs need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from ematix_flow.declare.retry import RetryPolicy
from ematix_flow.declare.workflow import Workflow, workflows
from ematix_flow.run_log.protocol import RunLogReader
from ematix_flow.run_log.records import AttemptState, LastRun, RunRecord
from ematix_flow.run_log.schedule import Action
from ematix_flow.run_log.worker import shown_status
from ematix_flow.scheduler.due import AFTER, CRON, MESSAGE, WAIT, Job, JobFacts


def job_facts(run_log: RunLogReader, jobs: Sequence[Job]) -> JobFacts:
    """Return the facts about jobs; the number of queries does not depend on the length of the history."""
    waiting = {name: slot.slot.partition(":")[2] for name, slot in run_log.last_slots(WAIT).items()}
    attempts = run_log.attempt_states()
    return JobFacts(
        succeeded=_with_workflow_successes(_succeeded(run_log, jobs), workflows()),
        fired={name: slot.slot for name, slot in run_log.last_slots(CRON).items()},
        waiting=waiting,
        triggered={name: slot.slot for name, slot in run_log.last_slots(AFTER).items()},
        attempts=attempts,
        paused={name: pause.by for name, pause in run_log.paused().items()},
        running=_running(run_log) | _requested_jobs(run_log, attempts),
    )


def _succeeded(run_log: RunLogReader, jobs: Sequence[Job]) -> dict[str, datetime]:
    last: Mapping[str, LastRun] = run_log.last_runs()
    successes = {name: run.at for name, run in last.items() if run.success}
    upstreams = {name for job in jobs for name in job.depends_on}
    upstreams |= {name for job in jobs if job.trigger is not None for name in job.trigger.leaves()}
    for name in upstreams - successes.keys():
        if name in last:  # the last run failed; an earlier one may have succeeded
            records, _ = run_log.list_runs(pipeline=name, status="succeeded", limit=1)
            if records and records[0].finished_at is not None:
                successes[name] = records[0].finished_at
    return successes


def _with_workflow_successes(succeeded: dict[str, datetime], flows: Mapping[str, Workflow]) -> dict[str, datetime]:
    """Add the workflows whose jobs have all succeeded, with the time of the last success."""
    for name, flow in flows.items():
        moments = [succeeded[job] for job in flow.jobs if job in succeeded]
        if len(moments) == len(flow.jobs):
            succeeded[name] = max(moments)
    return succeeded


def _running(run_log: RunLogReader) -> frozenset[str]:
    return frozenset(name for name, record in run_log.latest_runs().items() if is_running(record))


def _requested_jobs(run_log: RunLogReader, attempts: Mapping[str, AttemptState]) -> frozenset[str]:
    """Return the jobs with a requested run, which counts as running unless a retry of an earlier run goes first."""
    return frozenset(
        record.pipeline
        for record in run_log.pending_actions()
        if Action.of(record).starts_a_run and not (record.pipeline in attempts and waits_for_retry(record))
    )


def jobs_to_retry(run_log: RunLogReader, policies: Mapping[str, RetryPolicy]) -> set[str]:
    """Return the jobs whose last run failed and is to be tried again."""
    return {
        name
        for name, state in run_log.attempt_states().items()
        if name in policies and not state.gave_up and state.attempt_count < policies[name].max_attempts
    }


def waits_for_retry(record: RunRecord) -> bool:
    """Return whether a run waits until a failed earlier one of its job is retried: messages are processed in order."""
    return MESSAGE in record.extras and record.attempt == 1


def is_running(record: RunRecord) -> bool:
    """Return whether a worker that may be alive executes the run, so that the pipeline must not run elsewhere."""
    if record.extras.get("backfill"):  # past windows are loaded beside the live runs
        return False
    return shown_status(record) == "running"
