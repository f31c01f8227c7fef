"""The run log: what has run, what is running, and who may run it."""

from ematix_flow.runlog import (
    Action,
    AttemptState,
    ClaimResult,
    ExpiredClaim,
    InMemoryRunLog,
    Interval,
    LastRun,
    Pause,
    RunLog,
    RunRecord,
    Slot,
    SqliteRunLog,
    default_run_log,
    from_url,
)

__all__ = [
    "Action",
    "AttemptState",
    "ClaimResult",
    "ExpiredClaim",
    "InMemoryRunLog",
    "Interval",
    "LastRun",
    "Pause",
    "RunLog",
    "RunRecord",
    "Slot",
    "SqliteRunLog",
    "default_run_log",
    "from_url",
]
