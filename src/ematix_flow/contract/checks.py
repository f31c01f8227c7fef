"""Results of quality checks on the rows of a stage, before anything is published."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from ematix_flow.declare.quality.checks import Check


@dataclass(frozen=True)
class CheckResult:
    """The result of one check."""

    check: Check
    passed: bool
    rows: int
    """Number of rows in the load."""
    failing: int = 0
    """Number of rows that violate the check."""
    repeated: int = 0
    """Number of values that occur more than once."""
    newest: datetime | None = None
    """The newest value of a column that must be fresh."""
    samples: tuple[str, ...] = ()
    """Keys of some violating rows; never whole rows."""
