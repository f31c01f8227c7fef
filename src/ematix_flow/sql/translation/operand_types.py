"""Types of the operands in a statement, from Spark's own analysis, for all of a SELECT at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from ematix_flow.foundation.lazy_imports import exp
from ematix_flow.sql.translation.rewriting import is_settled, untranslatable

WHOLE = ("tinyint", "smallint", "int", "bigint")
FLOATS = ("float", "double")


class TypeAnalysis(Protocol):
    """The analysis of a query by Spark, without executing it."""

    def types(self, query: str, count: int) -> list[str] | None:
        """Return the types that Spark reports for a probe, which is invalid on purpose; None for any other error."""

    def check(self, query: str) -> None:
        """Raise the error of an invalid query."""


def selects_in_order(tree: Any) -> list[Any]:
    """Return the SELECTs of a statement, each after those it reads; None at the end for nodes outside of a SELECT."""
    from sqlglot.optimizer.scope import traverse_scope

    selects = [scope.expression for scope in traverse_scope(tree) if isinstance(scope.expression, exp.Select)]
    seen = {id(item) for item in selects}
    return [*selects, *(item for item in tree.find_all(exp.Select) if id(item) not in seen), None]


def sites_in(tree: Any, select: Any, is_site: Callable[[Any], bool]) -> list[Any]:
    """Return the sites of a SELECT that contain no undecided site and depend on none."""
    mine = [
        node
        for node in (select if select is not None else tree).walk()
        if is_site(node) and not is_settled(node) and node.find_ancestor(exp.Select) is select
    ]
    above = {id(parent) for node in mine for parent in _parents(node)}
    leaves = [node for node in mine if id(node) not in above]
    open_columns = {
        item.alias.lower(): item for item in (select.selects if select is not None else ()) if id(item) in above
    }
    return [node for node in leaves if not _names_one_of(node, open_columns)] or leaves


def _names_one_of(node: Any, columns: dict[str, Any]) -> bool:
    """Return whether the node refers to an undecided column of the same SELECT, which DuckDB permits."""
    named = [columns.get(item.name.lower()) for item in node.find_all(exp.Column) if not item.table]
    inside = {id(parent) for parent in _parents(node)}
    return any(item is not None and id(item) not in inside for item in named)


def _parents(node: Any) -> Iterator[Any]:
    node = node.parent
    while node is not None:
        yield node
        node = node.parent


def types_of(tree: Any, select: Any, sites: Sequence[Any], operands: Callable[[Any], list[Any]],
             spark: TypeAnalysis) -> list[list[str]]:  # fmt: skip
    """Return the operand types of each site: by one analysis for all of them, else by one per site."""
    types_by_site = {id(site): [literal_type(item) or "" for item in operands(site)] for site in sites}
    open_sites = [site for site in sites if not all(types_by_site[id(site)])]
    beside = [site for site in open_sites if not _is_in_lambda(site)]
    wanted = [item for site in beside for item in operands(site)]
    types_beside = _types_in_extra_column(tree, select, wanted, spark) if wanted else None
    if types_beside is not None:
        types = iter(types_beside)
        types_by_site |= {id(site): [next(types) for _ in operands(site)] for site in beside}
    for site in open_sites:
        if not all(types_by_site[id(site)]):
            types_by_site[id(site)] = _types_in_place(tree, site, operands(site), spark)
    return [types_by_site[id(site)] for site in sites]


def _is_in_lambda(node: Any) -> bool:
    return isinstance(node.find_ancestor(exp.Lambda, exp.Query), exp.Lambda)


def literal_type(node: Any) -> str | None:
    """Return the type of a number or text literal, None for other nodes."""
    while isinstance(node, (exp.Neg, exp.Paren)):
        node = node.this
    if not isinstance(node, exp.Literal):
        return None
    if node.is_string:
        return "string"
    if node.is_int:
        return "int" if int(node.name) < 2**31 else "bigint"
    return "double" if "e" in node.name.lower() else "decimal(38,18)"


def _types_in_extra_column(tree: Any, select: Any, wanted: list[Any], spark: TypeAnalysis) -> list[str] | None:
    """Return the types from a probe added as a column, which Spark analyses before grouping; None if that fails."""
    if select is None:
        return None
    probe = _probe(wanted)
    select.append("expressions", probe)
    try:
        return spark.types(tree.sql(dialect="spark", comments=False), len(wanted))
    finally:
        select.args["expressions"].remove(probe)


def _types_in_place(tree: Any, site: Any, wanted: list[Any], spark: TypeAnalysis) -> list[str]:
    """Return the types from a probe in place of the expression, which may be inside a lambda."""
    probe = _probe(wanted)
    site.replace(probe)
    try:
        types = spark.types(tree.sql(dialect="spark", comments=False), len(wanted))
    finally:
        probe.replace(site)
    if types is None:
        spark.check(tree.sql(dialect="spark", comments=False))
        raise untranslatable(f"Spark does not tell the type of {site.sql(dialect='spark')}", "write CAST(… AS …) in it")
    return types


def _probe(wanted: list[Any]) -> Any:
    """Return a call whose type error reports the operands' types, whatever they are."""
    fields = [part for place, item in enumerate(wanted) for part in (exp.Literal.string(f"a{place}"), item.copy())]
    return exp.Anonymous(this="MAP_KEYS", expressions=[exp.Anonymous(this="NAMED_STRUCT", expressions=fields)])
