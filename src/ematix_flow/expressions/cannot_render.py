"""The exception of a dialect that cannot execute an operation with the same meaning."""

from __future__ import annotations


class CannotRender(Exception):
    """A dialect cannot execute `op` with the same result; the planner then uses the Spark path."""

    def __init__(self, op: str, dialect: str, reason: str) -> None:
        super().__init__(f"{op} cannot run inside {dialect}: {reason}")
        self.op = op
        self.dialect = dialect
        self.reason = reason
