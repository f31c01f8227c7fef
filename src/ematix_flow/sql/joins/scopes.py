"""The parts of a statement whose relations may be reordered: inner joins of plain tables, results without row order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ematix_flow.foundation.lazy_imports import exp

LEAST_RELATIONS = 3
_TABLE_PARTS = {"this", "db", "catalog", "alias"}
_SELECT_PARTS = {"kind", "hint", "match", "laterals", "connect", "start", "sample", "pivots", "qualify", "into",
                 "cluster", "distribute", "sort", "settings", "format", "operation_modifiers", "prewhere"}  # fmt: skip


@dataclass(frozen=True)
class WrittenCondition:
    """A condition, and how many relations are listed before it: it may refer to these only."""

    node: Any
    sees: int


@dataclass(frozen=True)
class JoinScope:
    """One SELECT whose FROM lists tables by commas, CROSS JOIN or INNER JOIN … ON."""

    select: Any
    relations: tuple[Any, ...]
    conditions: tuple[WrittenCondition, ...]
    """The conjunction's conditions, those of ON before those of WHERE."""

    @property
    def is_nested(self) -> bool:
        """Return whether names that no relation has may refer to an enclosing query."""
        return self.select.find_ancestor(exp.Select) is not None


def scopes_in(tree: Any) -> list[JoinScope]:
    """Return the scopes of a statement; none if the order of rows may affect its result."""
    if not _is_steady(tree):
        return []
    local = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    return [scope for select in tree.find_all(exp.Select) for scope in [_scope(select, local)] if scope is not None]


def conjuncts(condition: Any) -> Iterator[Any]:
    """Yield the conditions of a conjunction."""
    if isinstance(condition, exp.Paren):
        yield from conjuncts(condition.this)
    elif isinstance(condition, exp.And):
        yield from conjuncts(condition.this)
        yield from conjuncts(condition.expression)
    else:
        yield condition


def _is_steady(tree: Any) -> bool:
    """Return whether the result does not depend on the order of the tables' rows."""
    plain = (exp.Sum, exp.Avg, exp.Count, exp.CountIf, exp.Min, exp.Max, exp.Stddev, exp.StddevPop, exp.StddevSamp,
             exp.Variance, exp.VariancePop, exp.LogicalAnd, exp.LogicalOr)  # fmt: skip
    drawn = (exp.Rand, exp.Randn, exp.Uuid, exp.Shuffle, exp.Anonymous, exp.AnonymousAggFunc, exp.Hint,
             exp.TableSample, exp.Lateral, exp.Pivot, exp.Window, exp.Parameter, exp.Placeholder, exp.Command)  # fmt: skip
    for node in tree.walk():
        if isinstance(node, drawn) or (isinstance(node, exp.AggFunc) and not isinstance(node, plain)):
            return False
        cut = isinstance(node, exp.Query) and (node.args.get("limit") or node.args.get("offset"))
        if cut and not node.args.get("order"):
            return False
        if isinstance(node, exp.Fetch):
            return False
    return True


def _scope(select: Any, local: set[str]) -> JoinScope | None:
    holder, joins = select.args.get("from_"), select.args.get("joins") or []
    if holder is None or len(joins) + 1 < LEAST_RELATIONS or any(select.args.get(name) for name in _SELECT_PARTS):
        return None
    relations = (holder.this, *(join.this for join in joins))
    if not all(_is_plain(relation, local) for relation in relations) or not all(map(_is_inner, joins)):
        return None
    names = [relation.alias_or_name.lower() for relation in relations]
    if len(set(names)) < len(names) or _is_ordered_by_tables(select):
        return None
    ons = [join.args.get("on") for join in joins]
    if any(ons) and (not all(ons) or any(on.find(exp.Select) for on in ons)):
        return None  # between commas, an ON does not see all relations listed before it
    where = select.args.get("where")
    written = [WrittenCondition(item, number) for number, on in enumerate(ons, 2) if on for item in conjuncts(on)]
    written += [WrittenCondition(item, len(relations)) for item in (conjuncts(where.this) if where else ())]
    return JoinScope(select, relations, tuple(written))


def _is_plain(relation: Any, local: set[str]) -> bool:
    """Return whether this is a table by its name with at most an alias, and not a name of a WITH query."""
    if not isinstance(relation, exp.Table) or not isinstance(relation.this, exp.Identifier):
        return False
    if {name for name, value in relation.args.items() if value} - _TABLE_PARTS:
        return False
    alias = relation.args.get("alias")
    if alias is not None and ({name for name, value in alias.args.items() if value} - {"this"}):
        return False
    return bool(relation.db) or relation.name.lower() not in local


def _is_inner(join: Any) -> bool:
    used = {name for name, value in join.args.items() if value} - {"this", "kind", "on"}
    return not used and str(join.args.get("kind") or "").upper() in ("", "INNER", "CROSS")


def _is_ordered_by_tables(select: Any) -> bool:
    """Return whether a * lists the columns of all relations, one after the other."""
    return any(
        star.find_ancestor(exp.Select) is select and not isinstance(star.parent, (exp.Count, exp.Column))
        for star in select.find_all(exp.Star)
    )
