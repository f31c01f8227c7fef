"""The run log in a SQLite file."""

from ematix_flow.runlog.sqlite import SqliteRunLog

__all__ = ["SqliteRunLog"]
