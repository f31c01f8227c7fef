"""Writes a statement's inner joins in the cheapest order, by the statistics of its tables."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, TypeAlias

from ematix_flow.foundation.redact import mask
from ematix_flow.sql.joins.column_resolution import ColumnResolver
from ematix_flow.sql.joins.file_statistics import TableFiles, table_stats
from ematix_flow.sql.joins.join_graph import describe_scope
from ematix_flow.sql.joins.join_order import JoinOrder, cheapest_order, order_as_written
from ematix_flow.sql.joins.predicate_evaluation import CannotEstimate
from ematix_flow.sql.joins.query_editing import canonical_text, permute_relations
from ematix_flow.sql.joins.scopes import JoinScope, scopes_in
from ematix_flow.sql.joins.table_statistics import TableStats

LEAST_BYTES = 10 * 1024 * 1024
"""The minimum size of the largest table: smaller joins take less time than the reordering."""
_GAIN = 0.8
_GAIN_BESIDE_QUERIES = 0.5
"""A stricter threshold, as neither the selectivity of a subquery in a condition nor its shuffles are estimated."""
_ROUNDS = 8

FilesOf: TypeAlias = "Callable[[Any], TableFiles | None]"
"""Returns the files of a table in the statement, None where nothing is known about them."""


@dataclass(frozen=True)
class Reordered:
    """The statement, and for each changed SELECT the new order and its reason."""

    query: str
    reasons: tuple[str, ...] = ()


def reorder_joins(
    query: str, files_of: FilesOf, *, parse: Callable[[str], Any], broadcast: Callable[[], int]
) -> Reordered:
    """Return the statement in the best form for Spark, which joins relations in the order they are listed.

    Tables of up to `broadcast()` bytes are joined without a shuffle. If anything is unclear or fails, the statement is
    returned unchanged.
    """
    try:
        tree = parse(query)
        if not scopes_in(tree):
            return Reordered(query)
        return _Rewriter(files_of, parse, broadcast).rewritten(query, tree)
    except Exception as exc:  # an optimisation must not stop a statement that runs without it
        logging.getLogger(__name__).debug("joins stay in the order they are written: %s", mask(str(exc)))
        return Reordered(query)


class _Rewriter:
    """Rewrites one SELECT after the other, each in the text produced by the previous step."""

    def __init__(self, files_of: FilesOf, parse: Callable[[str], Any], broadcast: Callable[[], int]) -> None:
        self._ask_for_files = files_of
        self._files: dict[tuple[str, ...], TableFiles | None] = {}
        self._parse = parse
        self._broadcast = broadcast

    def rewritten(self, query: str, tree: Any) -> Reordered:
        written = query
        reasons: list[str] = []
        for _ in range(_ROUNDS):
            next_text = self._next(query, self._parse(query) if reasons else tree)
            if next_text is None:
                break
            query, reason = next_text
            reasons.append(reason)
        if reasons and canonical_text(self._parse(query)) != canonical_text(tree):
            raise CannotEstimate("the new text means something else")
        return Reordered(query, tuple(reasons)) if reasons else Reordered(written)

    def _next(self, query: str, tree: Any) -> tuple[str, str] | None:
        """Return the text after the first SELECT that can be improved, and the reason; None if there is none."""
        for scope in scopes_in(tree):
            try:
                chosen = self._chosen(scope)
                if chosen is not None:
                    return permute_relations(query, scope, chosen[1].order), _reason(scope, *chosen)
            except CannotEstimate as exc:
                logging.getLogger(__name__).debug("a join stays as it is written: %s", exc)
        return None

    def _chosen(self, scope: JoinScope) -> tuple[JoinOrder, JoinOrder] | None:
        """Return the order that Spark would use and a better one, None unless the latter is much cheaper."""
        files = [self._files_of(relation) for relation in scope.relations]
        known = [item for item in files if item is not None]
        if len(known) < len(files) or max(item.size for item in known) < LEAST_BYTES:
            return None
        tables = [_stats(item, ()) for item in known]
        wanted = ColumnResolver(scope, tables).columns_needed()
        tables = [_stats(item, names) for item, names in zip(known, wanted, strict=True)]
        resolver = ColumnResolver(scope, tables)
        conditions = resolver.conditions()
        relations, links = describe_scope(resolver, conditions)
        broadcast = self._broadcast()
        best = cheapest_order(relations, links, broadcast=broadcast)
        written = order_as_written(relations, links, broadcast=broadcast)
        needed_gain = _GAIN_BESIDE_QUERIES if any(item.holds_query for item in conditions) else _GAIN
        return (written, best) if best is not None and best.cost < needed_gain * written.cost else None

    def _files_of(self, relation: Any) -> TableFiles | None:
        """Return the files of a table, listed once."""
        names = tuple(part.name for part in relation.parts)
        if names not in self._files:
            self._files[names] = self._ask_for_files(relation)
        return self._files[names]


def _stats(files: TableFiles, wanted: Collection[str]) -> TableStats:
    statistics = table_stats(files, wanted)
    if statistics is None:
        raise CannotEstimate("too many files")
    return statistics


def _reason(scope: JoinScope, written: JoinOrder, best: JoinOrder) -> str:
    """Return a text for users: the order with estimated rows after each join, and the comparison with the original."""
    names = [scope.relations[number].alias_or_name for number in best.order]
    joined = " → ".join(
        [names[0], *(f"{name} (~{rows:,.0f})" for name, rows in zip(names[1:], best.rows, strict=True))]
    )
    before, now = max(written.rows[:-1]), max(best.rows[:-1])
    most = f"at most ~{now:,.0f} rows between joins, ~{before:,.0f} as written"
    return f"{joined}: {most}; estimated cost {best.cost / written.cost:.0%} of that"
