"""The run log in tables: the part that all SQL databases share."""

from ematix_flow.run_log.sql.dialect import RunLogDialect, RunLogSession
from ematix_flow.run_log.sql.store import SqlRunLog

__all__ = ["RunLogDialect", "RunLogSession", "SqlRunLog"]
