"""What may become of a run's record when somebody changes it."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from ematix_flow.runlog.records import RunRecord


class Fate(Enum):
    """What happens to a record that is not replaced."""

    KEPT = "kept"
    REMOVED = "removed"


Change = Callable[[RunRecord], "RunRecord | Fate"]
