"""The run log: what has run, what is running, and who may run it."""

from ematix_flow.runlog import (
    AttemptState,
    ClaimResult,
    ExpiredClaim,
    InMemoryRunLog,
    LastRun,
    RunLog,
    RunRecord,
    SqliteRunLog,
    default_run_log,
    from_url,
)

__all__ = [
    "AttemptState",
    "ClaimResult",
    "ExpiredClaim",
    "InMemoryRunLog",
    "LastRun",
    "RunLog",
    "RunRecord",
    "SqliteRunLog",
    "default_run_log",
    "from_url",
]
