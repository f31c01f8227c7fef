"""One SELECT split into its clauses, as spans of tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ematix_flow.foundation.lazy_imports import exp
from ematix_flow.sql.tokens import Span, Tokens

_AFTER_FROM = ("WHERE", "GROUP_BY", "HAVING", "QUALIFY", "WINDOW", "ORDER_BY", "SORT_BY", "CLUSTER_BY", "DISTRIBUTE_BY",
               "LIMIT", "OFFSET")  # fmt: skip
_SETS = ("UNION", "EXCEPT", "INTERSECT")


@dataclass(frozen=True)
class SelectItem:
    """One column of the result: its expression and its alias."""

    span: Span
    alias: str | None
    is_star: bool


@dataclass(frozen=True)
class SelectClauses:
    """The clauses of a statement that is one SELECT; the span of an absent clause is empty."""

    tokens: Tokens
    tree: Any
    select: int
    """The number of the token SELECT, which a WITH clause may precede."""
    items: tuple[SelectItem, ...]
    source: Span
    """FROM with its tables and joins, without WHERE and the clauses after it."""
    where: Span
    """The condition of WHERE."""
    group: Span
    """The keys of GROUP BY."""
    rest: Span
    """HAVING and everything after it."""


def clauses_of(tokens: Tokens, tree: Any) -> SelectClauses | None:
    """Return the clauses; None for anything but one plain SELECT."""
    if not isinstance(tree, exp.Select) or tree.args.get("distinct") or tree.args.get("hint"):
        return None
    flat = list(tokens.flat((0, len(tokens))))
    select = next((number for number in flat if tokens.kind(number) == "SELECT"), None)
    if select is None or any(tokens.kind(number) in _SETS for number in flat):
        return None
    start = next((number for number in flat if number > select and _is_from(tokens, number)), None)
    if start is None:
        return None
    borders = [number for number in flat if number > start and tokens.kind(number) in _AFTER_FROM]
    if [tokens.kind(number) for number in borders].count("WHERE") > 1:
        return None
    items = _items(tokens, tree, (select + 1, start))
    if items is None:
        return None
    ends = dict(zip(borders, [*borders, len(tokens)][1:], strict=True))

    def clause(kind: str) -> Span:
        at = next((number for number in borders if tokens.kind(number) == kind), None)
        return (at + 1, ends[at]) if at is not None else (len(tokens), len(tokens))

    behind = [number for number in borders if tokens.kind(number) not in ("WHERE", "GROUP_BY")]
    rest = (behind[0], len(tokens)) if behind else (len(tokens), len(tokens))
    source = (start, borders[0] if borders else len(tokens))
    return SelectClauses(tokens, tree, select, items, source, clause("WHERE"), clause("GROUP_BY"), rest)


def _is_from(tokens: Tokens, number: int) -> bool:
    """Return whether a token is FROM, but not that of IS DISTINCT FROM."""
    return tokens.kind(number) == "FROM" and tokens.kind(number - 1) != "DISTINCT"


def _items(tokens: Tokens, tree: Any, span: Span) -> tuple[SelectItem, ...] | None:
    spans = tokens.parts(span)
    if len(spans) != len(tree.expressions):
        return None
    items = []
    for (low, high), node in zip(spans, tree.expressions, strict=True):
        alias = node.alias if isinstance(node, exp.Alias) else None
        if alias is not None:
            if tokens.word(high - 1) != alias.lower():
                return None
            high -= 2 if tokens.kind(high - 2) == "ALIAS" else 1
        elif isinstance(node, exp.Aliases):
            return None
        items.append(SelectItem((low, high), alias, bool(node.is_star)))
    return tuple(items)
