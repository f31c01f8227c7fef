"""The possible changes of a run's record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import Enum
from typing import Any

from ematix_flow.foundation.clock import now
from ematix_flow.runlog.records import RunRecord


class Fate(Enum):
    """The fate of a record that is not replaced."""

    KEPT = "kept"
    REMOVED = "removed"


def closed(record: RunRecord, status: str, summary: str, error: Mapping[str, Any] | None = None) -> RunRecord:
    """Return the record of a run that another process ends now."""
    extras = {**record.extras, "error": dict(error)} if error is not None else record.extras
    return replace(record, status=status, finished_at=now(), error_summary=summary, extras=extras)


Change = Callable[[RunRecord], "RunRecord | Fate"]
