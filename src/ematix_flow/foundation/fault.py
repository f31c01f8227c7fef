"""Named points where a test may kill the process; without effect unless EMATIX_FLOW_FAULT names one."""

from __future__ import annotations

import os
import signal

POINTS = ("before_stage", "mid_stage", "before_publish", "after_publish")
_VARIABLE = "EMATIX_FLOW_FAULT"


def is_armed(name: str) -> bool:
    """Return whether the environment names this point."""
    return os.environ.get(_VARIABLE) == name


def point(name: str, *, victim: int | None = None) -> None:
    """Kill `victim` and this process with SIGKILL if the environment names this point."""
    if is_armed(name):
        if victim is not None:
            os.kill(victim, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)  # or a task would run past the point after its driver was killed
