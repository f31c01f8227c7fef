"""The run log in the tables of a SQL database."""

from __future__ import annotations

from ematix_flow.runlog.sql.agenda import SqlAgenda
from ematix_flow.runlog.sql.claims import SqlClaims
from ematix_flow.runlog.sql.history import SqlHistory


class SqlRunLog(SqlHistory, SqlClaims, SqlAgenda):
    """A run log in one SQL database; each claim, slot and interval is granted in one transaction."""
