"""Runs SQL statements on Delta tables, addressed by their names below the connection's path; each is one commit."""

from __future__ import annotations

from typing import Any

from ematix_flow.backends.delta.source import DeltaSource
from ematix_flow.backends.delta.table import DeltaTable, exclusive_write
from ematix_flow.dataplane.spark_session import active_session, is_active_session_sail
from ematix_flow.declare.connections import DeltaLocalConnection, DeltaS3Connection
from ematix_flow.families.lake.client import LakeClient
from ematix_flow.families.lake.errors import translated_errors
from ematix_flow.families.lake.source import parse_statement, replace_in_text, table_name_parts
from ematix_flow.foundation.errors import SqlError, Unsupported
from ematix_flow.foundation.lazy_imports import exp
from ematix_flow.sql.linear_query import without_semicolon

_AFFECTED = "num_affected_rows"


class DeltaClient(LakeClient):
    """A client that executes INSERT, UPDATE, DELETE, MERGE and queries on Delta tables."""

    title = "Delta Lake"

    def __init__(self, connection: DeltaLocalConnection | DeltaS3Connection) -> None:
        super().__init__(DeltaSource(connection))

    def execute(self, sql: str) -> int:
        """Execute a statement; return the rows affected, 0 where Delta does not report them."""
        if is_active_session_sail():
            raise Unsupported(
                'engine="sail" takes queries of Delta tables, and no other statements: its conditions miss rows with NaN',
                hint='use engine="local"',
            )
        query = without_semicolon(sql)
        with translated_errors("the statement"), exclusive_write():
            frame = active_session().sql(self._with_paths(query))
            rows = frame.collect()
        return int(rows[0][_AFFECTED]) if rows and _AFFECTED in frame.columns else 0

    def _with_paths(self, query: str) -> str:
        tree = parse_statement(query)
        if not isinstance(tree, (exp.Insert, exp.Update, exp.Delete, exp.Merge, exp.Query)):
            raise SqlError("only INSERT, UPDATE, DELETE, MERGE and queries run here",
                           hint="tables are created and changed by their declarations")  # fmt: skip
        local = {cte.alias for cte in tree.find_all(exp.CTE)}
        tables = [
            table
            for table in tree.find_all(exp.Table)
            if isinstance(table.this, exp.Identifier) and not (table.name in local and not table.db)
        ]
        relations = [(table, DeltaTable(self._source.locate(table_name_parts(table))).relation) for table in tables]
        return replace_in_text(query, tree, relations, bare=_targets(tree))


def _targets(tree: Any) -> set[int]:
    """Return the id of the table that an INSERT fills: it must not get an alias."""
    if not isinstance(tree, exp.Insert):
        return set()
    target = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
    return {id(target)}
