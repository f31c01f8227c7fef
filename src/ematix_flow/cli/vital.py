"""Whether a run that says it is running still is."""

from __future__ import annotations

from ematix_flow.runlog.records import RunRecord
from ematix_flow.runlog.worker import is_dead

DIED = "died"


def shown_status(record: RunRecord) -> str:
    """The status, except that a run whose process has ended without a word is not running."""
    worker = record.extras.get("worker")
    if record.status == "running" and isinstance(worker, str) and is_dead(worker):
        return DIED
    return record.status
