"""The records of the schedule store: fired slots, pauses, queued actions and data intervals."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from ematix_flow.foundation.errors import DeclarationError
from ematix_flow.foundation.names import did_you_mean
from ematix_flow.run_log.records import RunRecord, from_text, in_utc, storable_text, to_text
from ematix_flow.run_log.worker import is_dead

INTERVAL_STATUSES = ("planned", "running", "done", "failed")
# Each of these becomes a run under the action's own id; the others refer to an existing run.
STARTING = ("run", "rerun", "restart", "resume", "retry")
ACTIONS = (*STARTING, "cancel")
CRON = "cron"


@dataclass(frozen=True)
class Slot:
    """A fired slot: its name, its time and its worker.

    >>> Slot("load_orders", "cron:2026-11-16T03:00:00Z", datetime(2026, 11, 16, 3), "host:1:0").kind
    'cron'
    """

    pipeline: str
    slot: str
    fired_at: datetime
    worker_id: str
    run_id: str = ""
    """The id of the run that was requested when the slot was taken."""

    @property
    def kind(self) -> str:
        """Return the kind of trigger: the text before the colon."""
        return self.slot.partition(":")[0][:32]

    def to_dict(self) -> dict[str, str]:
        """Return the form in which every store writes it."""
        return {
            "pipeline": self.pipeline,
            "slot": self.slot,
            "fired_at": to_text(self.fired_at),
            "worker_id": self.worker_id,
            "run_id": self.run_id,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Slot:
        """Return the slot that `to_dict()` wrote; earlier versions recorded no run."""
        return cls(
            data["pipeline"], data["slot"], from_text(data["fired_at"]), data["worker_id"], data.get("run_id") or ""
        )

    @property
    def digest(self) -> str:
        """Return a fixed-length name for a slot of any length."""
        return hashlib.sha256(self.slot.encode()).hexdigest()


@dataclass(frozen=True)
class Pause:
    """A pipeline or workflow that is not fired until it is unpaused."""

    name: str
    at: datetime
    by: str


@dataclass(frozen=True)
class Action:
    """A request of a user; `run_id` is the run that it refers to, `arguments` must be JSON serialisable."""

    kind: str
    pipeline: str
    run_id: str | None = None
    from_step: str | None = None
    by: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.kind not in ACTIONS:
            raise DeclarationError(f"there is no action {self.kind!r}", hint=did_you_mean(str(self.kind), ACTIONS))

    @property
    def starts_a_run(self) -> bool:
        """Return whether the action becomes a run of its own."""
        return self.kind in STARTING

    def to_record(self, run_id: str, at: datetime) -> RunRecord:
        """Return the record that represents the action in the run log, with the status requested."""
        record_extras = {
            "action": self.kind,
            "prior_run_id": self.run_id,
            "restart_from_step": self.from_step,
            "rerun_full": self.kind == "rerun",
            "requested_by": self.by,
            "arguments": dict(self.arguments),
        }
        extras = {name: value for name, value in record_extras.items() if value}
        return RunRecord(run_id, self.pipeline, "requested", at, extras=extras)

    @classmethod
    def of(cls, record: RunRecord) -> Action:
        """Return the action of a requested run; without a recorded kind it is `run`."""
        extras = record.extras
        return cls(
            kind=str(extras.get("action") or "run"),
            pipeline=record.pipeline,
            run_id=extras.get("prior_run_id"),
            from_step=extras.get("restart_from_step"),
            by=str(extras.get("requested_by") or ""),
            arguments=extras.get("arguments") or {},
        )


@dataclass(frozen=True)
class Interval:
    """An interval of data time and the status of its load; the store counts the attempts.

    A result with a worker id is accepted only while that worker holds the interval; one without is always accepted.
    """

    start: datetime
    end: datetime
    status: str = "planned"
    run_id: str | None = None
    attempt: int = 0
    error: str | None = None
    worker_id: str | None = None
    expires_at: datetime | None = None

    def __post_init__(self) -> None:
        if self.status not in INTERVAL_STATUSES:
            hint = did_you_mean(str(self.status), INTERVAL_STATUSES)
            raise DeclarationError(f"an interval cannot be {self.status!r}", hint=hint)
        object.__setattr__(self, "start", in_utc(self.start))
        object.__setattr__(self, "end", in_utc(self.end))
        if self.end <= self.start:
            raise DeclarationError(f"an interval ends after it starts, not at {self.end}")
        if self.expires_at is not None:
            object.__setattr__(self, "expires_at", in_utc(self.expires_at))
        if self.error is not None:
            object.__setattr__(self, "error", storable_text(self.error))

    def is_held(self, moment: datetime) -> bool:
        """Return whether a worker that may be alive is loading it."""
        if self.status != "running" or self.expires_at is None or self.worker_id is None:
            return False
        return self.expires_at > moment and not is_dead(self.worker_id)

    def after(self, before: Interval | None) -> Interval | None:
        """Return this interval as it is to replace the stored one; None if the stored one stays."""
        if before is None:
            return self
        if self.status == "planned" and before.status == "running":
            return None
        if self.worker_id is not None and (before.status, before.worker_id) != ("running", self.worker_id):
            return None
        lease = before.expires_at if self.status == "running" else None
        attempt = max(self.attempt, before.attempt)
        return replace(self, attempt=attempt, worker_id=self.worker_id or before.worker_id, expires_at=lease)

    def claimed(self, worker_id: str, moment: datetime, lease_seconds: float) -> Interval | None:
        """Return the interval as claimed by this worker; None if it is done or held by another worker."""
        if self.status == "done" or self.is_held(moment):
            return None
        expires = moment + timedelta(seconds=lease_seconds)
        return replace(
            self, status="running", attempt=self.attempt + 1, error=None, worker_id=worker_id, expires_at=expires
        )

    def renewed(self, worker_id: str, moment: datetime, lease_seconds: float) -> Interval | None:
        """Return the interval with an extended lease; None if this worker no longer holds it."""
        if (self.status, self.worker_id) != ("running", worker_id):
            return None
        return replace(self, expires_at=moment + timedelta(seconds=lease_seconds))
