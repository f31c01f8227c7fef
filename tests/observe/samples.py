"""Events and records that several tests use."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

from ematix_flow.alerters.event import AlertEvent
from ematix_flow.run_log.records import RunRecord

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=timezone.utc)


def event(kind: str = "failed", pipeline: str = "orders", *, minutes: int = 0, **more: Any) -> AlertEvent:
    """An alert, so many minutes after noon."""
    return AlertEvent(kind, pipeline, NOON + timedelta(minutes=minutes), **more)


def full_event(**more: Any) -> AlertEvent:
    """An alert that says everything."""
    known: dict[str, Any] = {
        "error_message": "no server answers at db:5432",
        "error_type": "Unreachable",
        "attempt_count": 2,
        "max_attempts": 3,
        "run_id": "1a2b3c4d-0000-4000-8000-000000000000",
        "where": "pipelines.py:41",
        "step": "stage",
        "since": NOON - timedelta(minutes=75),
        "hint": "is the server running?",
    }
    return event(**{**known, **more})


def record(status: str = "failed", pipeline: str = "orders", *, minutes: int = 0, seconds: int = 2,
           run_id: str = "1a2b3c4d-0000-4000-8000-000000000000", **more: Any) -> RunRecord:  # fmt: skip
    """A run that began so many minutes after noon."""
    began = NOON + timedelta(minutes=minutes)
    ended = None if status == "running" else began + timedelta(seconds=seconds)
    return RunRecord(run_id, pipeline, status, began, ended, **more)
