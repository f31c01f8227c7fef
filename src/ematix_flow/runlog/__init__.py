"""The run log and its stores: run records, the schedule, and the leases that let one process run a pipeline."""

from ematix_flow.runlog.agenda import Action, Interval, Pause, Slot
from ematix_flow.runlog.default import default_address, default_run_log
from ematix_flow.runlog.memory import InMemoryRunHistory, InMemoryRunLog
from ematix_flow.runlog.protocol import ClaimResult, ExpiredClaim, RunHistoryStore, RunLog
from ematix_flow.runlog.records import AttemptState, LastRun, RunRecord
from ematix_flow.runlog.sqlite import SqliteRunLog
from ematix_flow.runlog.urls import from_url
from ematix_flow.runlog.worker import is_dead, this_worker

__all__ = [
    "Action",
    "AttemptState",
    "ClaimResult",
    "ExpiredClaim",
    "InMemoryRunHistory",
    "InMemoryRunLog",
    "Interval",
    "LastRun",
    "Pause",
    "RunHistoryStore",
    "RunLog",
    "RunRecord",
    "Slot",
    "SqliteRunLog",
    "default_address",
    "default_run_log",
    "from_url",
    "is_dead",
    "this_worker",
]
