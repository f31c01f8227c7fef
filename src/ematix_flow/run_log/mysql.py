"""The run log in MySQL or MariaDB."""

from ematix_flow.runlog.mysql import MySQLRunLog

__all__ = ["MySQLRunLog"]
