"""Which attempt of which task this is: files and rows of attempts that Spark does not count are never published."""

from __future__ import annotations

import secrets
import sys


def attempt_number() -> int:
    """Spark's number of this attempt, or one that was drawn where nobody numbers tasks; no other of the load has it."""
    if "pyspark" in sys.modules:  # a load without Spark does not import it for this
        from pyspark import TaskContext

        context = TaskContext.get()
        if context is not None:
            return int(context.taskAttemptId())
    return secrets.randbits(62)
