"""What may become of a run's record when somebody changes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import Enum
from typing import Any

from ematix_flow.foundation.clock import now
from ematix_flow.runlog.records import RunRecord


class Fate(Enum):
    """What happens to a record that is not replaced."""

    KEPT = "kept"
    REMOVED = "removed"


def closed(record: RunRecord, status: str, summary: str, error: Mapping[str, Any] | None = None) -> RunRecord:
    """The record of a run that ends now by somebody else's word."""
    extras = {**record.extras, "error": dict(error)} if error is not None else record.extras
    return replace(record, status=status, finished_at=now(), error_summary=summary, extras=extras)


Change = Callable[[RunRecord], "RunRecord | Fate"]
