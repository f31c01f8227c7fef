"""Queue the due jobs: each slot is taken once and recorded as a requested run.

Any process may execute a requested run; the run log lets exactly one take it. A process that dies in between leaves a
slot without a run; the next process finds that slot and requests the run under the same id.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from ematix_flow.foundation.clock import now as clock_now
from ematix_flow.orchestrate.due import AFTER, CRON, MESSAGE, RETRY, WAIT, Fire, Job, Known, Skip, decide
from ematix_flow.orchestrate.known import known_by
from ematix_flow.runlog.agenda import Slot
from ematix_flow.runlog.protocol import RunLog
from ematix_flow.runlog.records import RunRecord
from ematix_flow.runlog.worker import this_worker

SLOT = "slot"


@dataclass(frozen=True)
class Ticked:
    """The fired and skipped jobs of one polling cycle."""

    fired: tuple[Fire, ...] = ()
    skipped: tuple[Skip, ...] = ()


@dataclass(frozen=True)
class Queueing:
    """The queue of due jobs; `leader` is the leader token that must be valid for its writes."""

    jobs: Sequence[Job]
    run_log: RunLog
    interval: float
    leader: str | None = None
    say: Callable[[str], None] = lambda _: None

    def tick(self, now: datetime, *, interval: float | None = None, leave: Container[str] = ()) -> Ticked:
        """Request a run of every due job that can run, except the jobs in `leave`."""
        known = known_by(self.run_log, self.jobs)
        decisions = decide(self.jobs, known, now=now, interval=interval or self.interval)
        due = [item for item in decisions if isinstance(item, Fire) and item.name not in leave]
        fired = [item for item in due if self._fire(item)]
        skipped = [item for item in decisions if isinstance(item, Skip)]
        for item in skipped:
            self._wait(item, known)
        return Ticked(tuple(fired), tuple(skipped))

    def recover(self) -> list[str]:
        """Request the missing runs of slots that were taken without one; return the names of their jobs."""
        newest = {record.run_id for record in self.run_log.latest_runs().values()}
        names = {job.name for job in self.jobs}
        found = [slot for kind in (CRON, RETRY, AFTER) for slot in self.run_log.last_slots(kind).values()]
        return [
            slot.pipeline
            for slot in found
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

    def _fire(self, fire: Fire) -> bool:
        slot = Slot(fire.name, fire.slot, clock_now(), this_worker(), str(uuid.uuid4()))
        if not self.run_log.take_slot(  # with the time, so that a recovered run has the same time and counts as the same
            fire.name, fire.slot, slot.worker_id, leader=self.leader, run_id=slot.run_id, fired_at=slot.fired_at
        ):  # another process was first
            return False
        if fire.clears_attempts:
            self.run_log.clear_attempt_state(fire.name)
        self.run_log.offer_run(self._repeated(_requested(slot)), leader=self.leader)
        self.say(f"firing: {fire.name} ({fire.slot})")
        return True

    def _wait(self, item: Skip, known: Known) -> None:
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
