"""The run log: run records, the schedule, and the leases that let one process run a pipeline."""

from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from ematix_flow.runlog.azure_blob import AzureBlobRunLog
    from ematix_flow.runlog.duckdb import DuckDBRunLog
    from ematix_flow.runlog.gcs import GcsRunLog
    from ematix_flow.runlog.mysql import MySQLRunLog
    from ematix_flow.runlog.postgres import PostgresRunLog
    from ematix_flow.runlog.s3 import S3RunLog

__all__ = [
    "Action",
    "AttemptState",
    "AzureBlobRunLog",
    "ClaimResult",
    "DuckDBRunLog",
    "ExpiredClaim",
    "GcsRunLog",
    "InMemoryRunLog",
    "Interval",
    "LastRun",
    "MySQLRunLog",
    "Pause",
    "PostgresRunLog",
    "RunLog",
    "RunRecord",
    "S3RunLog",
    "Slot",
    "SqliteRunLog",
    "default_run_log",
    "from_url",
]
_LAZY = {
    "PostgresRunLog": "ematix_flow.runlog.postgres",
    "MySQLRunLog": "ematix_flow.runlog.mysql",
    "DuckDBRunLog": "ematix_flow.runlog.duckdb",
    "S3RunLog": "ematix_flow.runlog.s3",
    "GcsRunLog": "ematix_flow.runlog.gcs",
    "AzureBlobRunLog": "ematix_flow.runlog.azure_blob",
}


def __getattr__(name: str) -> Any:
    # Each needs an optional package.
    if name in _LAZY:
        from importlib import import_module

        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
