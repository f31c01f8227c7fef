"""The run log: what has run, what is running, and who may run it."""

from typing import TYPE_CHECKING

from ematix_flow.foundation.names import lazy_exports

if TYPE_CHECKING:
    from ematix_flow.run_log.azure_blob import AzureBlobRunLog
    from ematix_flow.run_log.default import default_run_log
    from ematix_flow.run_log.duckdb import DuckDBRunLog
    from ematix_flow.run_log.gcs import GcsRunLog
    from ematix_flow.run_log.memory import InMemoryRunLog
    from ematix_flow.run_log.mysql import MySQLRunLog
    from ematix_flow.run_log.postgres import PostgresRunLog
    from ematix_flow.run_log.protocol import ClaimResult, ExpiredClaim, RunLog
    from ematix_flow.run_log.records import AttemptState, LastRun, RunRecord
    from ematix_flow.run_log.s3 import S3RunLog
    from ematix_flow.run_log.schedule import Action, Interval, Pause, Slot
    from ematix_flow.run_log.sqlite import SqliteRunLog
    from ematix_flow.run_log.urls import from_url

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

__getattr__ = lazy_exports(
    __name__,
    {
        "Action": "ematix_flow.run_log.schedule",
        "AttemptState": "ematix_flow.run_log.records",
        "AzureBlobRunLog": "ematix_flow.run_log.azure_blob",
        "ClaimResult": "ematix_flow.run_log.protocol",
        "DuckDBRunLog": "ematix_flow.run_log.duckdb",
        "ExpiredClaim": "ematix_flow.run_log.protocol",
        "GcsRunLog": "ematix_flow.run_log.gcs",
        "InMemoryRunLog": "ematix_flow.run_log.memory",
        "Interval": "ematix_flow.run_log.schedule",
        "LastRun": "ematix_flow.run_log.records",
        "MySQLRunLog": "ematix_flow.run_log.mysql",
        "Pause": "ematix_flow.run_log.schedule",
        "PostgresRunLog": "ematix_flow.run_log.postgres",
        "RunLog": "ematix_flow.run_log.protocol",
        "RunRecord": "ematix_flow.run_log.records",
        "S3RunLog": "ematix_flow.run_log.s3",
        "Slot": "ematix_flow.run_log.schedule",
        "SqliteRunLog": "ematix_flow.run_log.sqlite",
        "default_run_log": "ematix_flow.run_log.default",
        "from_url": "ematix_flow.run_log.urls",
    },
)
