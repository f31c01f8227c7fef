"""The history of runs, and the requests of users."""

from ematix_flow.runlog.memory import InMemoryRunHistory
from ematix_flow.runlog.protocol import RunHistoryStore
from ematix_flow.runlog.records import RunRecord

__all__ = ["InMemoryRunHistory", "RunHistoryStore", "RunRecord"]
