"""The run log in the tables of a SQL database."""

from __future__ import annotations

from ematix_flow.run_log.sql.claims import SqlClaims
from ematix_flow.run_log.sql.history import SqlHistory
from ematix_flow.run_log.sql.schedule import SqlSchedule


class SqlRunLog(SqlHistory, SqlClaims, SqlSchedule):
    """A run log in one SQL database; each claim, slot and interval is granted in one transaction."""
