"""Suggestions of the most likely intended name, for systems that only report a missing one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ematix_flow.contract.backend import BatchSource
from ematix_flow.engine.sql.connection_references import parse_query, tables_of
from ematix_flow.foundation.errors import FlowError, MissingColumn
from ematix_flow.foundation.lazy_imports import exp, sqlglot
from ematix_flow.foundation.names import nearest_name


def suggest_column(error: MissingColumn, source: BatchSource, query: str, dialect: str) -> None:
    """Put the nearest column of the query's tables into the error's hint, where there is one."""
    try:
        tree = sqlglot.parse_one(query.strip().rstrip(";"), read=dialect)
        named = [cte.alias for cte in tree.find_all(exp.CTE)]
        tables = {table.sql(dialect=dialect, comments=False) for table in map(_plain, tree.find_all(exp.Table))}
        known = [
            column.name
            for table in sorted(tables - set(named))
            for column in source.plan(f"SELECT * FROM {table}", parallelism=1).columns
        ]
    except (sqlglot.errors.SqlglotError, FlowError):  # the original error matters more
        return
    for column in tree.find_all(exp.Column):
        near = nearest_name(column.name, known)
        if column.name in error.what and near and near != column.name and near not in (error.hint or ""):
            error.hint = f"did you mean {near!r}?"
            return


def suggest_connection(error: FlowError, query: str, dialect: str, known: Iterable[str]) -> None:
    """Put the nearest connection into the hint if a table written connection.schema.table names an unknown one."""
    parsed_query = parse_query(query, (dialect, "spark"))
    names = sorted(set(known))
    for table in tables_of(parsed_query[0]) if parsed_query else ():
        first = table.parts[0].name
        near = nearest_name(first, names) if len(table.parts) > 2 and first not in names else None
        if near:
            error.hint = f"did you mean {near!r}? {first!r} is no connection"
            return


def _plain(table: Any) -> Any:
    bare = table.copy()
    bare.set("alias", None)
    return bare
