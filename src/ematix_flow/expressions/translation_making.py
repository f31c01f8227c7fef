"""Expressions of Spark SQL made from a few words, for the rules that write a dialect's meaning."""

from __future__ import annotations

from typing import Any

from ematix_flow.foundation.errors import SqlError

_SETTLED = "flow_settled"
_CUTTING = "flow_cutting"


def made(words: str, **parts: Any) -> Any:
    """An expression of Spark SQL with `:name` for each part; a part may stand in several places.

    >>> from sqlglot import parse_one
    >>> made("RINT(:x) DIV 2", x=parse_one("a + b")).sql(dialect="spark")
    'RINT(a + b) DIV 2'
    """
    from sqlglot import exp, parse_one

    tree = parse_one(words, read="spark")
    if isinstance(tree, exp.Placeholder):
        return parts[tree.name].copy()
    for node in list(tree.walk()):
        settle(node)
    for place in list(tree.find_all(exp.Placeholder)):
        part = parts[place.name].copy()
        alone = isinstance(place.parent, exp.Func) and not isinstance(place.parent, (exp.Binary, exp.Cast))
        place.replace(part if alone or not _binds_loosely(part) else exp.Paren(this=part))
    return tree


def _binds_loosely(node: Any) -> bool:
    from sqlglot import exp

    return isinstance(node, (exp.Binary, exp.Unary, exp.Between, exp.In)) and not isinstance(node, (exp.Paren, exp.Dot))


def settle(node: Any) -> None:
    """Remember that a node means in Spark what it should."""
    node.meta[_SETTLED] = True


def is_settled(node: Any) -> bool:
    """Whether nothing is left to decide about a node."""
    return bool(node.meta.get(_SETTLED))


def cutting(node: Any) -> Any:
    """A quotient that Spark can analyse whatever its operands are, and which is cut when both are whole numbers."""
    from sqlglot import exp

    made_of = exp.Div(this=node.left, expression=node.right)
    made_of.meta[_CUTTING] = True
    return made_of


def is_cutting(node: Any) -> bool:
    """Whether a quotient was written to be cut."""
    return bool(node.meta.get(_CUTTING))


def refused(what: str, hint: str) -> SqlError:
    """The error of an expression that Spark would take for something else."""
    return SqlError(what, hint=hint)


def shown(node: Any, dialect: str) -> str:
    """A node in the user's words, cut where it is long."""
    said = str(node.sql(dialect=dialect))
    return said if len(said) <= 60 else said[:59] + "…"
