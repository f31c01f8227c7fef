"""The run log in a DuckDB file."""

from ematix_flow.runlog.duckdb import DuckDBRunLog

__all__ = ["DuckDBRunLog"]
