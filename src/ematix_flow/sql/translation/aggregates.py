"""Rewriting of aggregates that treat NULL, order or empty groups differently from Spark."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ematix_flow.foundation.lazy_imports import exp
from ematix_flow.sql.translation.rewriting import build_sql, untranslatable


def aggregate_rules() -> dict[Any, Callable[[Any, str], Any]]:
    """Return the rewriting rules of the aggregates, by node class."""
    return {
        exp.ArrayAgg: _array_agg,
        exp.ArgMax: _by,
        exp.ArgMin: _by,
        exp.AnyValue: _any_value,
        exp.WithinGroup: _within_group,
        exp.PercentileCont: _quantile,
    }


def _array_agg(node: Any, dialect: str) -> None:
    """Rewrite array_agg, which keeps NULL and order, and gives NULL for no rows; FILTER and OVER are preserved."""
    value, order, distinct = _aggregate_parts(node)
    outer = node
    while isinstance(outer.parent, (exp.Filter, exp.Window)) and outer.arg_key == "this":
        outer = outer.parent
    if order and isinstance(outer, exp.Window):
        raise untranslatable("array_agg with ORDER BY and OVER has no twin in Spark SQL", "sort in the window alone")
    packs = bool(order) or not _is_never_null(value)
    collected = _sorted_array(value, order, distinct) if packs else build_sql(f"COLLECT_LIST({distinct}:v)", v=value)
    never_empty = outer is node and node.find_ancestor(exp.Select).args.get("group") is not None
    if outer is node:
        outer = collected
        place = node
    else:
        node.replace(collected)
        place = outer
    words = f"ARRAY_SORT(:x, (l, r) -> {_sort_comparison(order)})" if order else ":x"
    words = f"TRANSFORM({words}, e -> e.v)" if packs else words
    place.replace(build_sql(words if never_empty else f"NULLIF({words}, ARRAY())", x=outer))


def _aggregate_parts(node: Any) -> tuple[Any, list[Any], str]:
    """Return the aggregated value, its ORDER BY terms and `DISTINCT ` or an empty text."""
    value, order, distinct = node.this, [], ""
    if isinstance(value, exp.Order):
        value, order = value.this, value.expressions
    if isinstance(value, exp.Distinct):
        value, distinct = value.expressions[0], "DISTINCT "
    return value, order, distinct


def _is_never_null(node: Any) -> bool:
    return isinstance(node, (exp.Struct, exp.Literal)) or str(getattr(node, "this", "")).lower() == "named_struct"


def _sorted_array(value: Any, order: list[Any], distinct: str) -> Any:
    keys = "".join(f", 'k{place}', :k{place}" for place in range(len(order)))
    parts = {f"k{place}": item.this for place, item in enumerate(order)}
    return build_sql(f"COLLECT_LIST({distinct}NAMED_STRUCT('v', :v{keys}))", v=value, **parts)


def _sort_comparison(order: list[Any]) -> str:
    """Return SQL that compares `l` and `r` by the order, as -1, 0 or 1."""
    cases = []
    for place, item in enumerate(order):
        left, right = f"l.k{place}", f"r.k{place}"
        first, last = (-1, 1) if item.args.get("nulls_first") else (1, -1)
        less, more = (1, -1) if item.args.get("desc") else (-1, 1)
        cases += [
            f"WHEN {left} IS NULL AND {right} IS NOT NULL THEN {first}",
            f"WHEN {left} IS NOT NULL AND {right} IS NULL THEN {last}",
            f"WHEN {left} < {right} THEN {less} WHEN {left} > {right} THEN {more}",
        ]
    return f"CASE {' '.join(cases)} ELSE 0 END"


def _by(node: Any, dialect: str) -> Any:
    """Rewrite max_by and min_by, which skip rows where the value is NULL."""
    if node.args.get("count") is not None:
        return None  # rejected when the statement is rendered
    name = "MAX_BY" if type(node).__name__ == "ArgMax" else "MIN_BY"
    return build_sql(f"{name}(:v, CASE WHEN :v IS NOT NULL THEN :k END)", v=node.this, k=node.expression)


def _any_value(node: Any, dialect: str) -> Any:
    """Rewrite any_value, which gives NULL only when all values are NULL."""
    return None if isinstance(node.parent, exp.IgnoreNulls) else build_sql("ANY_VALUE(:v) IGNORE NULLS", v=node.this)


def _within_group(node: Any, dialect: str) -> Any:
    """Keep exact percentiles, which sqlglot would write as approximate ones."""
    names = {exp.PercentileCont: "PERCENTILE_CONT", exp.PercentileDisc: "PERCENTILE_DISC"}
    name = names.get(type(node.this))
    if name is None:
        return None
    within = node.copy()
    within.this.replace(exp.Anonymous(this=name, expressions=[node.this.this.copy()]))
    return within


def _quantile(node: Any, dialect: str) -> Any:
    return build_sql("PERCENTILE(:v, :p)", v=node.this, p=node.expression) if node.expression is not None else None
