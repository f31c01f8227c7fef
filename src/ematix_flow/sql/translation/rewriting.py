"""Helpers that build Spark SQL expressions for the rewriting rules."""

from __future__ import annotations

from typing import Any

from ematix_flow.foundation.errors import SqlError
from ematix_flow.foundation.lazy_imports import exp, sqlglot

_SETTLED = "flow_settled"
_CUTTING = "flow_cutting"


def build_sql(words: str, **parts: Any) -> Any:
    """Parse Spark SQL and replace each `:name` by its part; a part may occur several times.

    >>> from sqlglot import parse_one
    >>> build_sql("RINT(:x) DIV 2", x=parse_one("a + b")).sql(dialect="spark")
    'RINT(a + b) DIV 2'
    """
    tree = sqlglot.parse_one(words, read="spark")
    if isinstance(tree, exp.Placeholder):
        return parts[tree.name].copy()
    for node in list(tree.walk()):
        mark_settled(node)
    for place in list(tree.find_all(exp.Placeholder)):
        part = parts[place.name].copy()
        alone = isinstance(place.parent, exp.Func) and not isinstance(place.parent, (exp.Binary, exp.Cast))
        place.replace(part if alone or not _binds_loosely(part) else exp.Paren(this=part))
    return tree


def _binds_loosely(node: Any) -> bool:
    return isinstance(node, (exp.Binary, exp.Unary, exp.Between, exp.In)) and not isinstance(node, (exp.Paren, exp.Dot))


def mark_settled(node: Any) -> None:
    """Mark a node as having its final meaning in Spark."""
    node.meta[_SETTLED] = True


def is_settled(node: Any) -> bool:
    """Return whether a node needs no more rewriting."""
    return bool(node.meta.get(_SETTLED))


def truncating_quotient(node: Any) -> Any:
    """Return a quotient that Spark can analyse for all operand types, marked to be truncated for integer operands."""
    made_of = exp.Div(this=node.left, expression=node.right)
    made_of.meta[_CUTTING] = True
    return made_of


def is_truncating_quotient(node: Any) -> bool:
    """Return whether a quotient is marked to be truncated."""
    return bool(node.meta.get(_CUTTING))


def untranslatable(what: str, hint: str) -> SqlError:
    """Return the error for an expression that would have another meaning in Spark."""
    return SqlError(what, hint=hint)


def shown_node(node: Any, dialect: str) -> str:
    """Return a node as SQL of the user's dialect, cut to 60 characters."""
    text = str(node.sql(dialect=dialect))
    return text if len(text) <= 60 else text[:59] + "…"
