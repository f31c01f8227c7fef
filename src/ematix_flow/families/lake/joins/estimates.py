"""The join graph of a scope: its tables with the rows that their conditions leave, and its join conditions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ematix_flow.families.lake.joins.ordering import Link, Relation
from ematix_flow.families.lake.joins.resolve import Condition, Resolver
from ematix_flow.families.lake.joins.scopes import conjuncts
from ematix_flow.families.lake.joins.selectivity import UNKNOWN, joined_share, rows_left, share_of


def described(resolver: Resolver, conditions: Sequence[Condition]) -> tuple[list[Relation], list[Link]]:
    """Return the relations and links from which orders are compared."""
    relations = []
    for number, (table, used) in enumerate(zip(resolver.tables, resolver.used(), strict=True)):
        own = [item.node for item in conditions if item.relations == {number} and not item.is_opaque]
        shares = [_implied(resolver, item, number) for item in conditions if len(item.relations) > 1]
        rows = rows_left(table, own) * _product(shares)
        relations.append(Relation(max(1.0, rows), table.bytes_of(used), table.rows))
    return relations, [*_equalities(resolver, conditions), *_others(resolver, conditions)]


def _equalities(resolver: Resolver, conditions: Sequence[Condition]) -> list[Link]:
    """Return one link per pair of relations, for all their equal columns together."""
    pairs: dict[tuple[int, int], list[tuple[float | None, float | None]]] = {}
    for condition in conditions:
        if _is_equality(condition):
            left, right = condition.node.this, condition.node.expression
            if resolver.relations_of(left) != {min(condition.relations)}:
                left, right = right, left
            key = (min(condition.relations), max(condition.relations))
            pairs.setdefault(key, []).append((resolver.stats_of(left).distinct, resolver.stats_of(right).distinct))
    made = []
    for key, columns in pairs.items():
        rows = tuple(float(resolver.tables[number].rows) for number in key)
        share = joined_share(columns, (rows[0], rows[1]))
        made.append(Link(frozenset(key), share if share is not None else 1 / max(1.0, *rows)))
    return made


def _others(resolver: Resolver, conditions: Sequence[Condition]) -> list[Link]:
    """Return links for non-equality conditions on several relations, without what they imply for a single one."""
    made = []
    for condition in conditions:
        if len(condition.relations) < 2 or _is_equality(condition):
            continue
        share = 1.0
        if not condition.is_opaque:
            implied = _product(_implied(resolver, condition, number) for number in condition.relations)
            share = min(1.0, _share(resolver, condition.node) / max(implied, 1e-12))
        made.append(Link(condition.relations, share, is_equality=False))
    return made


def _is_equality(condition: Condition) -> bool:
    """Return whether this is `a.x = b.y`."""
    from sqlglot import exp

    node = condition.node
    plain = isinstance(node, exp.EQ) and isinstance(node.this, exp.Column) and isinstance(node.expression, exp.Column)
    return plain and len(condition.relations) == 2 and not condition.is_opaque


def _implied(resolver: Resolver, condition: Condition, number: int) -> float:
    """Return the share of one relation's rows that an OR leaves if each of its branches restricts the relation."""
    from sqlglot import exp

    if condition.is_opaque or not isinstance(condition.node, exp.Or) or number not in condition.relations:
        return 1.0
    left_out = 1.0
    for branch in condition.node.flatten():
        own = [item for item in conjuncts(branch) if resolver.relations_of(item) == {number}]
        if not own:
            return 1.0
        left_out *= 1 - _product(_share(resolver, item) for item in own)
    return 1 - left_out


def _share(resolver: Resolver, node: Any) -> float:
    """Return the share of all combinations of rows that meets a condition on any relations."""
    from sqlglot import exp

    if isinstance(node, exp.Paren):
        return _share(resolver, node.this)
    relations = resolver.relations_of(node)
    if len(relations) == 1:
        return share_of(resolver.tables[next(iter(relations))], node)
    if isinstance(node, exp.And):
        return _product(_share(resolver, item) for item in node.flatten())
    if isinstance(node, exp.Or):
        return 1 - _product(1 - _share(resolver, item) for item in node.flatten())
    return UNKNOWN


def _product(shares: Iterable[float]) -> float:
    made = 1.0
    for share in shares:
        made *= share
    return made
