"""Turns due slots into requested runs, once each; the claim of the leading scheduler."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from ematix_flow.foundation.clock import now as clock_now
from ematix_flow.run_log.protocol import RunLog
from ematix_flow.run_log.records import RunRecord
from ematix_flow.run_log.schedule import Slot
from ematix_flow.run_log.worker import this_worker
from ematix_flow.scheduler.due import AFTER, CRON, MESSAGE, RETRY, WAIT, DueJob, Job, JobFacts, SkippedJob, decide_due
from ematix_flow.scheduler.job_facts import job_facts

SLOT = "slot"


@dataclass(frozen=True)
class TickResult:
    """The fired and skipped jobs of one polling cycle."""

    fired: tuple[DueJob, ...] = ()
    skipped: tuple[SkippedJob, ...] = ()


@dataclass(frozen=True)
class DueQueue:
    """The queue of due jobs; `leader` is the leader token that must be valid for its writes."""

    jobs: Sequence[Job]
    run_log: RunLog
    interval: float
    leader: str | None = None
    report: Callable[[str], None] = lambda _: None

    def tick(self, now: datetime, *, interval: float | None = None, leave: Container[str] = ()) -> TickResult:
        """Request a run of every due job that can run, except the jobs in `leave`."""
        known = job_facts(self.run_log, self.jobs)
        decisions = decide_due(self.jobs, known, now=now, interval=interval or self.interval)
        due = [item for item in decisions if isinstance(item, DueJob) and item.name not in leave]
        fired = [item for item in due if self._fire(item)]
        skipped = [item for item in decisions if isinstance(item, SkippedJob)]
        for item in skipped:
            self._wait(item, known)
        return TickResult(tuple(fired), tuple(skipped))

    def recover(self) -> list[str]:
        """Request the missing runs of slots that were taken without one; return the names of their jobs."""
        newest = {record.run_id for record in self.run_log.latest_runs().values()}
        names = {job.name for job in self.jobs}
        slots = [slot for kind in (CRON, RETRY, AFTER) for slot in self.run_log.last_slots(kind).values()]
        return [
            slot.pipeline
            for slot in slots
            if slot.pipeline in names
            and slot.run_id
            and slot.run_id not in newest
            and self.run_log.get_run(slot.run_id) is None
            and self.run_log.offer_run(self._repeated(_requested(slot)), leader=self.leader)
        ]

    def _repeated(self, record: RunRecord) -> RunRecord:
        """Copy the message and workflow of the failed run into its retry."""
        if record.attempt == 1:
            return record
        failed = self.run_log.latest_runs().get(record.pipeline)
        kept = {key: failed.extras[key] for key in (MESSAGE, "workflow") if key in failed.extras} if failed else {}
        return replace(record, extras={**record.extras, **kept})

    def _fire(self, fire: DueJob) -> bool:
        slot = Slot(fire.name, fire.slot, clock_now(), this_worker(), str(uuid.uuid4()))
        if not self.run_log.take_slot(  # with the time, so that a recovered run has the same time and counts as the same
            fire.name, fire.slot, slot.worker_id, leader=self.leader, run_id=slot.run_id, fired_at=slot.fired_at
        ):  # another process was first
            return False
        if fire.clears_attempts:
            self.run_log.clear_attempt_state(fire.name)
        self.run_log.offer_run(self._repeated(_requested(slot)), leader=self.leader)
        self.report(f"firing: {fire.name} ({fire.slot})")
        return True

    def _wait(self, item: SkippedJob, known: JobFacts) -> None:
        """Record, once, that a cron slot waits: it stays due after its interval has passed."""
        if item.waits_for is None or not item.waits_for.startswith(CRON):
            return
        if known.waiting.get(item.name) != item.waits_for:
            self.run_log.take_slot(item.name, f"{WAIT}:{item.waits_for}", this_worker(), leader=self.leader)


def _requested(slot: Slot) -> RunRecord:
    kind, _, rest = slot.slot.partition(":")
    attempt = int(rest.rpartition("#")[2]) if kind == RETRY else 1
    extras = {"action": "run", SLOT: slot.slot, "requested_by": slot.worker_id}
    return RunRecord(slot.run_id, slot.pipeline, "requested", slot.fired_at, attempt=attempt, extras=extras)


def leader_claim(group: str) -> str:
    """Return the name of the leader claim; modules that share a run log have separate leaders."""
    return f"_scheduler_singleton:{group}" if group else "_scheduler_singleton"


def leader_of(run_log: RunLog, group: str) -> str | None:
    """Return the worker id of the leading scheduler, or None; tests it by claiming the leadership and releasing it."""
    claim = run_log.claim(leader_claim(group), this_worker(), 5)
    if claim.token is None:
        return claim.holder
    run_log.release(claim.token)
    return None
