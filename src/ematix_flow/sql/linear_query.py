"""Queries that read one table row by row: only these can be split without changing their result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ematix_flow.foundation.lazy_imports import exp, sqlglot


@dataclass(frozen=True)
class LinearQuery:
    """A parsed query of one table: projection and filter, no operation across rows."""

    tree: Any
    schema: str
    table: str
    alias: str
    dialect: str

    def where(self, condition: str) -> str:
        """Return the query with one more condition."""
        return str(self.tree.copy().where(condition, dialect=self.dialect).sql(dialect=self.dialect))


def without_semicolon(query: str) -> str:
    """Return the query without a trailing semicolon."""
    return query.strip().rstrip(";").strip()


def parse_linear(query: str, dialect: str) -> LinearQuery | None:
    """Return the parsed query, None when it is not linear or cannot be parsed."""
    try:
        tree = sqlglot.parse_one(query, read=dialect)
    except sqlglot.errors.SqlglotError:
        return None
    if not isinstance(tree, exp.Select) or len(list(tree.find_all(exp.Select))) != 1:
        return None
    across = (
        "group",
        "having",
        "distinct",
        "limit",
        "offset",
        "order",
        "joins",
        "laterals",
        "windows",
        "qualify",
        "with",
        "with_",
        "sample",
    )
    if any(tree.args.get(part) for part in across) or tree.find(exp.AggFunc, exp.Window, exp.Anonymous, exp.Subquery):
        return None
    tables = list(tree.find_all(exp.Table))
    if len(tables) != 1 or not isinstance(tables[0].this, exp.Identifier):
        return None
    table = tables[0]
    return LinearQuery(tree, table.db, table.name, table.alias_or_name, dialect)
