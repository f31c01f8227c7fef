"""Which attempt of which task this is: files and rows of attempts that Spark does not count are never published."""

from __future__ import annotations

import secrets


def attempt_number() -> int:
    """Return Spark's number of this attempt, or outside of a task a random one that no other attempt has."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return int(context.taskAttemptId()) if context is not None else secrets.randbits(62)
