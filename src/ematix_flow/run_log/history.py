"""The history of runs, and the requests of users."""

from ematix_flow.run_log.memory import InMemoryRunHistory
from ematix_flow.run_log.protocol import RunHistoryStore
from ematix_flow.run_log.records import RunRecord

__all__ = ["InMemoryRunHistory", "RunHistoryStore", "RunRecord"]
