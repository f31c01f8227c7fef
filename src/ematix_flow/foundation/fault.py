"""Named points where a test may kill the process; nothing happens unless EMATIX_FLOW_FAULT names one."""

from __future__ import annotations

import os
import signal

POINTS = ("before_stage", "mid_stage", "before_publish", "after_publish")
_VARIABLE = "EMATIX_FLOW_FAULT"


def is_armed(name: str) -> bool:
    """Whether the environment asks for this point."""
    return os.environ.get(_VARIABLE) == name


def point(name: str, *, victim: int | None = None) -> None:
    """Kill `victim` and this process with SIGKILL when the environment asks for it here."""
    if is_armed(name):
        if victim is not None:
            os.kill(victim, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)  # or a task would go on past the point while its driver is dead
