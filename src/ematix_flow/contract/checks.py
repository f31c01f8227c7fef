"""Results of quality checks on the rows of a stage, before anything is published."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from ematix_flow.contract.write import Stage, WriteJob
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


class CheckedStage(Protocol):
    """A sink that can run checks on its stage."""

    def check(self, job: WriteJob, stage: Stage, checks: Sequence[Check]) -> list[CheckResult]:
        """Return one result per check, computed from the rows of the stage; the source is not read again."""
