"""What is to be done and who does it: fired slots, pauses, queued actions, intervals."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from ematix_flow.foundation.errors import DeclarationError
from ematix_flow.foundation.names import did_you_mean
from ematix_flow.runlog.records import RunRecord, from_text, in_utc, storable, to_text
from ematix_flow.runlog.worker import is_dead

INTERVAL_STATUSES = ("planned", "running", "done", "failed")
# Each of these becomes a run under the action's own id; the others are about a run that is there already.
STARTING = ("run", "rerun", "restart", "resume", "retry")
ACTIONS = (*STARTING, "cancel")
CRON = "cron"


@dataclass(frozen=True)
class Slot:
    """A slot that was fired: which one, when and by whom.

    >>> Slot("load_orders", "cron:2026-11-16T03:00:00Z", datetime(2026, 11, 16, 3), "host:1:0").kind
    'cron'
    """

    pipeline: str
    slot: str
    fired_at: datetime
    worker_id: str
    run_id: str = ""
    """The run that was asked for when the slot was taken."""

    @property
    def kind(self) -> str:
        """What fired it: the word before the colon."""
        return self.slot.partition(":")[0][:32]

    def to_dict(self) -> dict[str, str]:
        """As every store keeps it."""
        return {
            "pipeline": self.pipeline,
            "slot": self.slot,
            "fired_at": to_text(self.fired_at),
            "worker_id": self.worker_id,
            "run_id": self.run_id,
        }

    @classmethod
    def from_dict(cls, told: Mapping[str, Any]) -> Slot:
        """The slot behind `to_dict()`; earlier versions named no run."""
        return cls(
            told["pipeline"], told["slot"], from_text(told["fired_at"]), told["worker_id"], told.get("run_id") or ""
        )

    @property
    def digest(self) -> str:
        """A name of one width for a slot of any length."""
        return hashlib.sha256(self.slot.encode()).hexdigest()


@dataclass(frozen=True)
class Pause:
    """A pipeline or workflow that shall not be fired until somebody says so."""

    name: str
    at: datetime
    by: str


@dataclass(frozen=True)
class Action:
    """What somebody asks for; `run_id` is the run it is about, `arguments` is anything that JSON can hold."""

    kind: str
    pipeline: str
    run_id: str | None = None
    from_step: str | None = None
    by: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.kind not in ACTIONS:
            raise DeclarationError(f"nobody can ask for {self.kind!r}", hint=did_you_mean(str(self.kind), ACTIONS))

    @property
    def starts_a_run(self) -> bool:
        """Whether it becomes a run of its own."""
        return self.kind in STARTING

    def to_record(self, run_id: str, at: datetime) -> RunRecord:
        """The requested run that stands for it in the history."""
        told = {
            "action": self.kind,
            "prior_run_id": self.run_id,
            "restart_from_step": self.from_step,
            "rerun_full": self.kind == "rerun",
            "requested_by": self.by,
            "arguments": dict(self.arguments),
        }
        extras = {name: value for name, value in told.items() if value}
        return RunRecord(run_id, self.pipeline, "requested", at, extras=extras)

    @classmethod
    def of(cls, record: RunRecord) -> Action:
        """What a requested run asks for; one that does not say is to be run."""
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
    """A stretch of data time and how its load stands; the store counts the attempts.

    A result that names its worker counts only while that worker still has the interval; one that names none always does.
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
            object.__setattr__(self, "error", storable(self.error))

    def is_held(self, moment: datetime) -> bool:
        """Whether somebody who may be alive works on it."""
        if self.status != "running" or self.expires_at is None or self.worker_id is None:
            return False
        return self.expires_at > moment and not is_dead(self.worker_id)

    def after(self, before: Interval | None) -> Interval | None:
        """This interval as it is to be kept over what was known; None when what was known stays."""
        if before is None:
            return self
        if self.status == "planned" and before.status == "running":
            return None
        if self.worker_id is not None and (before.status, before.worker_id) != ("running", self.worker_id):
            return None
        lease = before.expires_at if self.status == "running" else None
        attempt = max(self.attempt, before.attempt)
        return replace(self, attempt=attempt, worker_id=self.worker_id or before.worker_id, expires_at=lease)

    def taken(self, worker_id: str, moment: datetime, lease_seconds: float) -> Interval | None:
        """The same interval in this worker's hands; None when it is done or somebody else has it."""
        if self.status == "done" or self.is_held(moment):
            return None
        expires = moment + timedelta(seconds=lease_seconds)
        return replace(
            self, status="running", attempt=self.attempt + 1, error=None, worker_id=worker_id, expires_at=expires
        )

    def renewed(self, worker_id: str, moment: datetime, lease_seconds: float) -> Interval | None:
        """The same interval for longer; None when this worker no longer has it."""
        if (self.status, self.worker_id) != ("running", worker_id):
            return None
        return replace(self, expires_at=moment + timedelta(seconds=lease_seconds))
