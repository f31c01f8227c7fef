"""What a sink answers when the rows of its stage are checked, before anything is published."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from ematix_flow.contract.write import Stage, WriteJob
from ematix_flow.declare.checks import Check


@dataclass(frozen=True)
class Finding:
    """What came of one check."""

    check: Check
    passed: bool
    rows: int
    """Rows of the load."""
    failing: int = 0
    """Rows that break the check."""
    repeated: int = 0
    """Values that come more than once."""
    newest: datetime | None = None
    """The newest value of a column that must be fresh."""
    samples: tuple[str, ...] = ()
    """Keys of some rows that break it; never whole rows."""


class CheckedStage(Protocol):
    """A sink whose stage can be asked."""

    def check(self, job: WriteJob, stage: Stage, checks: Sequence[Check]) -> list[Finding]:
        """One finding for each check, from the rows of the stage; the source is not read again."""
