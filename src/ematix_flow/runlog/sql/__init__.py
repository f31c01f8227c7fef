"""The run log in tables: the part that all SQL databases share."""

from ematix_flow.runlog.sql.dialect import Dialect, Session
from ematix_flow.runlog.sql.store import SqlRunLog

__all__ = ["Dialect", "Session", "SqlRunLog"]
