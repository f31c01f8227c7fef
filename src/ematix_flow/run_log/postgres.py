"""The run log in PostgreSQL."""

from ematix_flow.runlog.postgres import PostgresRunLog

__all__ = ["PostgresRunLog"]
