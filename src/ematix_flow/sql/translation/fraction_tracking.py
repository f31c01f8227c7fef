"""Tracks the numbers that are fractions in the dialect although Spark types them as integers or floats."""

from __future__ import annotations

from typing import Any

from ematix_flow.foundation.lazy_imports import exp

_MARK = "flow_seen"


class FractionTracker:
    """The types recorded for nodes of a statement, followed through expressions and subqueries."""

    def __init__(self, tree: Any) -> None:
        from sqlglot.optimizer.scope import traverse_scope

        self._scopes = {id(scope.expression): scope for scope in traverse_scope(tree)}

    def record(self, node: Any, kind: str) -> None:
        """Record that a node is a `numeric` or a `double` in the dialect."""
        node.meta[_MARK] = kind

    def any_fraction(self, *nodes: Any) -> bool:
        """Return whether one of the nodes is a fraction in the dialect."""
        return any(self.of(node) is not None for node in nodes)

    def of(self, node: Any) -> str | None:
        """Return `numeric` or `double`, or None when Spark's type applies."""
        if node is None:
            return None
        if _MARK in node.meta:
            return str(node.meta[_MARK])
        if isinstance(node, exp.Extract):
            return "numeric"
        if isinstance(node, exp.Column):
            return self._of_column(node)
        kinds = {self.of(part) for part in _parts(node)} - {None}
        return "double" if "double" in kinds else next(iter(kinds), None)

    def _of_column(self, node: Any) -> str | None:
        scope = self._scopes.get(id(node.find_ancestor(exp.Select)))
        return self._named(scope, node.name.lower(), node.table.lower()) if scope is not None else None

    def _named(self, scope: Any, name: str, table: str = "") -> str | None:
        """Return the recorded type of a column of the scope's tables."""
        for alias, source in scope.sources.items():
            if (table and alias.lower() != table) or not hasattr(source, "expression"):
                continue
            for item in getattr(source.expression, "selects", ()):
                kind = self._named(source, name) if item.is_star else None
                if item.alias_or_name.lower() == name:
                    kind = self.of(item.unalias())
                if kind is not None:
                    return kind
        return None


def _parts(node: Any) -> list[Any]:
    """Return the operands that determine the type of an expression."""
    if isinstance(node, (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod)):
        return [node.left, node.right]
    if isinstance(node, (exp.Paren, exp.Neg, exp.Abs, exp.Round, exp.Window, exp.Filter, exp.Min, exp.Max, exp.Nullif)):
        return [node.this]
    if isinstance(node, (exp.Coalesce, exp.Greatest, exp.Least)):
        return [node.this, *node.expressions]
    if isinstance(node, exp.Case):
        return [*(item.args.get("true") for item in node.args.get("ifs") or ()), node.args.get("default")]
    return []
