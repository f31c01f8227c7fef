"""Records of the run log: runs, attempts, last outcomes, and what a change makes of a record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from enum import Enum
from typing import Any

from ematix_flow.foundation.clock import now
from ematix_flow.foundation.errors import DeclarationError, FlowError, error_facts
from ematix_flow.foundation.names import did_you_mean
from ematix_flow.foundation.redact import mask

UNFINISHED = ("requested", "running", "paused")
FINISHED = ("succeeded", "failed", "cancelled")
STATUSES = (*UNFINISHED, *FINISHED)
KINDS = ("batch", "streaming", "replay")


@dataclass(frozen=True)
class RunRecord:
    """One run of one pipeline; known secrets in its texts are masked before it is stored.

    >>> from datetime import datetime, timedelta, timezone
    >>> begun = datetime(2026, 1, 31, 23, 59, tzinfo=timezone.utc)
    >>> RunRecord("r1", "load_orders", "succeeded", begun, begun + timedelta(seconds=2)).duration_ms
    2000
    """

    run_id: str
    pipeline: str
    status: str
    started_at: datetime
    finished_at: datetime | None = None
    attempt: int = 1
    failed_step: str | None = None
    failed_watermark: str | None = None
    error_summary: str | None = None
    kind: str = "batch"
    extras: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.run_id or not self.pipeline:
            raise DeclarationError("a run record needs a run_id and the name of its pipeline")
        _one_of("status", self.status, STATUSES)
        _one_of("kind", self.kind, KINDS)
        if self.attempt < 1:
            raise DeclarationError(f"run {self.run_id} has attempt {self.attempt}", hint="the first attempt is 1")
        if self.status in UNFINISHED and self.finished_at is not None:
            raise DeclarationError(
                f"run {self.run_id} is {self.status} and has finished_at", hint="leave out finished_at"
            )
        object.__setattr__(self, "started_at", in_utc(self.started_at))
        if self.finished_at is not None:
            object.__setattr__(self, "finished_at", in_utc(self.finished_at))
        for text in ("failed_step", "failed_watermark", "error_summary", "extras"):
            object.__setattr__(self, text, _masked(getattr(self, text)))

    @property
    def duration_ms(self) -> int | None:
        """Return the duration in milliseconds; None if the run has not finished."""
        if self.finished_at is None:
            return None
        return max(0, round((self.finished_at - self.started_at).total_seconds() * 1000))

    def to_summary_dict(self) -> dict[str, Any]:
        """Return the fields of a listing, ready for JSON."""
        return {
            "run_id": self.run_id,
            "pipeline": self.pipeline,
            "status": self.status,
            "kind": self.kind,
            "attempt": self.attempt,
            "started_at": to_text(self.started_at),
            "finished_at": to_text(self.finished_at) if self.finished_at else None,
            "duration_ms": self.duration_ms,
            "error_summary": self.error_summary,
            "failed_step": self.failed_step,
        }

    def to_detail_dict(self) -> dict[str, Any]:
        """Return all fields, ready for JSON."""
        return {
            **self.to_summary_dict(),
            "failed_watermark": self.failed_watermark,
            "extras": dict(self.extras),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> RunRecord:
        """Return the record that `to_detail_dict()` wrote."""
        finished = data.get("finished_at")
        return cls(
            run_id=data["run_id"],
            pipeline=data["pipeline"],
            status=data["status"],
            started_at=from_text(data["started_at"]),
            finished_at=from_text(finished) if finished else None,
            attempt=data["attempt"],
            failed_step=data.get("failed_step"),
            failed_watermark=data.get("failed_watermark"),
            error_summary=data.get("error_summary"),
            kind=data["kind"],
            extras=data.get("extras") or {},
        )


@dataclass(frozen=True)
class AttemptState:
    """The number of consecutive failures of a pipeline."""

    attempt_count: int
    last_attempt_at: datetime
    gave_up: bool = False


@dataclass(frozen=True)
class LastRun:
    """The time and the outcome of a pipeline's last run."""

    at: datetime
    success: bool


def in_utc(moment: datetime) -> datetime:
    """Return the same instant in UTC; a time without a zone is taken as UTC."""
    return moment.replace(tzinfo=timezone.utc) if moment.tzinfo is None else moment.astimezone(timezone.utc)


def to_text(moment: datetime) -> str:
    """Return an instant as text of fixed width, so that sorting the text sorts the time.

    >>> to_text(datetime(2026, 1, 31, 23, 59))
    '2026-01-31T23:59:00.000000Z'
    """
    return in_utc(moment).strftime("%Y-%m-%dT%H:%M:%S.%f") + "Z"


def from_text(text: str) -> datetime:
    """Return the instant of the text, with or without fractions of a second.

    >>> from_text("2026-01-31T23:59:00Z")
    datetime.datetime(2026, 1, 31, 23, 59, tzinfo=datetime.timezone.utc)
    """
    return in_utc(datetime.fromisoformat(text.removesuffix("Z")))


def storable_text(text: str) -> str:
    """Return the text without secrets, and without the NULs and lone surrogates that some stores reject.

    >>> storable_text("cannot reach postgres://ana:hunter22@db")
    'cannot reach postgres://ana:***@db'
    """
    return mask(text).replace("\x00", "\ufffd").encode("utf-8", "replace").decode("utf-8")


def _one_of(what: str, value: str, valid: tuple[str, ...]) -> None:
    if value not in valid:
        raise DeclarationError(f"{what} {value!r} is not one a run can have", hint=did_you_mean(str(value), valid))


def _masked(value: Any) -> Any:
    if isinstance(value, str):
        return storable_text(value)
    if isinstance(value, Mapping):
        return {str(key): _masked(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_masked(inner) for inner in value]
    return value


class RecordFate(Enum):
    """The fate of a record that is not replaced."""

    KEPT = "kept"
    REMOVED = "removed"


def run_record(
    run_id: str,
    pipeline: str,
    status: str,
    started_at: datetime,
    *,
    error: BaseException | None = None,
    attempt: int = 1,
    kind: str = "batch",
    extras: Mapping[str, Any],
) -> RunRecord:
    """Return the record of a run as it stands now: `running`, or ended now, by the error if there is one."""
    facts = error.facts if isinstance(error, FlowError) else {}
    return RunRecord(
        run_id=run_id,
        pipeline=pipeline,
        status=status,
        started_at=started_at,
        finished_at=None if status == "running" else now(),
        attempt=attempt,
        failed_step=str(facts["step"]) if "step" in facts else None,
        error_summary=error_facts(error)[1] if error is not None else None,
        kind=kind,
        extras=extras,
    )


def closed_record(record: RunRecord, status: str, summary: str, error: Mapping[str, Any] | None = None) -> RunRecord:
    """Return the record of a run that another process ends now."""
    extras = {**record.extras, "error": dict(error)} if error is not None else record.extras
    return replace(record, status=status, finished_at=now(), error_summary=summary, extras=extras)


Change = Callable[[RunRecord], "RunRecord | RecordFate"]
