"""The attempt id of the current Spark task: output of attempts that Spark discards is never published."""

from __future__ import annotations

import secrets


def attempt_number() -> int:
    """Return Spark's id of this task attempt; outside of a task, a random number."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return int(context.taskAttemptId()) if context is not None else secrets.randbits(62)
