"""The run log in this process's memory."""

from ematix_flow.runlog.memory import InMemoryRunLog

__all__ = ["InMemoryRunLog"]
