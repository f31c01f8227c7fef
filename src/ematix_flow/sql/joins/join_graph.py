"""The join graph of a scope: its tables with the rows that their conditions leave, and its join conditions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ematix_flow.foundation.lazy_imports import exp
from ematix_flow.sql.joins.column_resolution import ColumnResolver, ResolvedCondition
from ematix_flow.sql.joins.join_order import JoinLink, JoinRelation
from ematix_flow.sql.joins.scopes import conjuncts
from ematix_flow.sql.joins.selectivity import UNKNOWN, joined_share, rows_left, share_of


def describe_scope(
    resolver: ColumnResolver, conditions: Sequence[ResolvedCondition]
) -> tuple[list[JoinRelation], list[JoinLink]]:
    """Return the relations and links from which orders are compared."""
    relations = []
    for number, (table, used) in enumerate(zip(resolver.tables, resolver.columns_used(), strict=True)):
        own = [item.node for item in conditions if item.relations == {number} and not item.is_opaque]
        shares = [_implied(resolver, item, number) for item in conditions if len(item.relations) > 1]
        rows = rows_left(table, own) * _product(shares)
        relations.append(JoinRelation(max(1.0, rows), table.bytes_of(used), table.rows))
    return relations, [*_equalities(resolver, conditions), *_other_links(resolver, conditions)]


def _equalities(resolver: ColumnResolver, conditions: Sequence[ResolvedCondition]) -> list[JoinLink]:
    """Return one link per pair of relations, for all their equal columns together."""
    pairs: dict[tuple[int, int], list[tuple[float | None, float | None]]] = {}
    for condition in conditions:
        if _is_equality(condition):
            left, right = condition.node.this, condition.node.expression
            if resolver.relations_of(left) != {min(condition.relations)}:
                left, right = right, left
            key = (min(condition.relations), max(condition.relations))
            pairs.setdefault(key, []).append((resolver.stats_of(left).distinct, resolver.stats_of(right).distinct))
    links = []
    for key, columns in pairs.items():
        rows = tuple(float(resolver.tables[number].rows) for number in key)
        share = joined_share(columns, (rows[0], rows[1]))
        links.append(JoinLink(frozenset(key), share if share is not None else 1 / max(1.0, *rows)))
    return links


def _other_links(resolver: ColumnResolver, conditions: Sequence[ResolvedCondition]) -> list[JoinLink]:
    """Return links for non-equality conditions on several relations, without what they imply for a single one."""
    links = []
    for condition in conditions:
        if len(condition.relations) < 2 or _is_equality(condition):
            continue
        share = 1.0
        if not condition.is_opaque:
            implied = _product(_implied(resolver, condition, number) for number in condition.relations)
            share = min(1.0, _share(resolver, condition.node) / max(implied, 1e-12))
        links.append(JoinLink(condition.relations, share, is_equality=False))
    return links


def _is_equality(condition: ResolvedCondition) -> bool:
    """Return whether this is `a.x = b.y`."""
    node = condition.node
    plain = isinstance(node, exp.EQ) and isinstance(node.this, exp.Column) and isinstance(node.expression, exp.Column)
    return plain and len(condition.relations) == 2 and not condition.is_opaque


def _implied(resolver: ColumnResolver, condition: ResolvedCondition, number: int) -> float:
    """Return the share of one relation's rows that an OR leaves if each of its branches restricts the relation."""
    if condition.is_opaque or not isinstance(condition.node, exp.Or) or number not in condition.relations:
        return 1.0
    left_out = 1.0
    for branch in condition.node.flatten():
        own = [item for item in conjuncts(branch) if resolver.relations_of(item) == {number}]
        if not own:
            return 1.0
        left_out *= 1 - _product(_share(resolver, item) for item in own)
    return 1 - left_out


def _share(resolver: ColumnResolver, node: Any) -> float:
    """Return the share of all combinations of rows that meets a condition on any relations."""
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
    product = 1.0
    for share in shares:
        product *= share
    return product
