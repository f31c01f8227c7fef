"""The run log in the memory of this process."""

from ematix_flow.runlog.memory import InMemoryRunLog

__all__ = ["InMemoryRunLog"]
