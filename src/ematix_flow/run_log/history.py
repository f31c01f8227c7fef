"""The history of runs, and what people ask for."""

from ematix_flow.runlog.memory import InMemoryRunHistory
from ematix_flow.runlog.protocol import RunHistoryStore
from ematix_flow.runlog.records import RunRecord

__all__ = ["InMemoryRunHistory", "RunHistoryStore", "RunRecord"]
