"""Edits the order of the relations in the text of a SELECT; all other text is unchanged."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ematix_flow.foundation.lazy_imports import exp
from ematix_flow.sql.joins.predicate_evaluation import CannotEstimate
from ematix_flow.sql.joins.scopes import JoinScope, conjuncts
from ematix_flow.sql.tokens import CLOSING, Span, Tokens

_SEPARATORS = ("COMMA", "JOIN", "INNER", "CROSS")
_ENDS = ("WHERE", "GROUP_BY", "HAVING", "ORDER_BY", "SORT_BY", "CLUSTER_BY", "DISTRIBUTE_BY", "LIMIT", "OFFSET",
         "UNION", "EXCEPT", "INTERSECT", "SEMICOLON")  # fmt: skip


@dataclass(frozen=True)
class _From:
    """The positions of a FROM's relations, its ON conditions and the WHERE that follows."""

    relations: tuple[Span, ...]
    ons: tuple[Span, ...]
    end: int
    where: Span | None


def permute_relations(query: str, scope: JoinScope, order: Sequence[int]) -> str:
    """Return the statement with the relations of one scope in another order; raise CannotEstimate if its text is unusual.

    ON conditions are moved to the start of WHERE, because they refer to relations that may now follow.
    """
    from_clause = _locate_from(query, scope)
    texts = [query[start:end] for start, end in (from_clause.relations[number] for number in order)]
    if not from_clause.ons:
        edits = [(start, end, text) for (start, end), text in zip(from_clause.relations, texts, strict=True)]
        return _apply_edits(query, edits)
    ons = " AND ".join(f"({query[start:end]})" for start, end in from_clause.ons)
    edits = [(from_clause.relations[0][0], from_clause.end, ", ".join(texts))]
    if from_clause.where is None:
        edits = [(from_clause.relations[0][0], from_clause.end, f"{', '.join(texts)} WHERE {ons}")]
    else:
        start, end = from_clause.where
        edits.append((start, end, f"{ons} AND ({query[start:end]})"))
    return _apply_edits(query, edits)


def canonical_text(tree: Any) -> str:
    """Return the statement with relations and conditions sorted: equal for two that differ in their order only."""
    copy = tree.copy()
    for select in reversed(list(copy.find_all(exp.Select))):
        holder, joins = select.args.get("from_"), select.args.get("joins") or []
        if holder is None or any(
            {key for key, value in join.args.items() if value} - {"this", "kind", "on"} for join in joins
        ):
            continue
        where = select.args.get("where")
        conditions = [join.args["on"] for join in joins if join.args.get("on")] + ([where.this] if where else [])
        texts = sorted(item.sql("spark", comments=False) for condition in conditions for item in conjuncts(condition))
        names = sorted(item.sql("spark", comments=False) for item in (holder.this, *(join.this for join in joins)))
        holder.set("this", exp.Tuple(expressions=[exp.Literal.string(name) for name in names]))
        select.set("joins", None)
        select.set("where", exp.Where(this=exp.Tuple(expressions=[exp.Literal.string(text) for text in texts])))
    return str(copy.sql("spark", comments=False))


def _apply_edits(query: str, edits: Sequence[tuple[int, int, str]]) -> str:
    for start, end, new in sorted(edits, reverse=True):
        query = query[:start] + new + query[end:]
    return query


def _locate_from(query: str, scope: JoinScope) -> _From:
    tokens = _Positions(query)
    spans = tuple(_span(relation) for relation in scope.relations)
    place = tokens.at(spans[0][0])
    if place == 0 or tokens.kind(place - 1) != "FROM":
        raise CannotEstimate("FROM")
    ons: list[Span] = []
    for number, (start, end) in enumerate(spans):
        if number:
            while tokens.kind(place) in _SEPARATORS:
                place += 1
        if tokens.start(place) != start:
            raise CannotEstimate("a relation in uncommon words")
        place = tokens.after(end)
        if tokens.kind(place) == "ON":
            first, place = place + 1, tokens.stop(place + 1, (*_SEPARATORS, *_ENDS))
            ons.append((tokens.start(first), tokens.end(place - 1)))
    if tokens.kind(place) not in ("", *_ENDS, *CLOSING):
        raise CannotEstimate(tokens.kind(place))
    where: Span | None = None
    ended = tokens.end(place - 1)
    if tokens.kind(place) == "WHERE":
        last = tokens.stop(place + 1, _ENDS)
        where = (tokens.start(place + 1), tokens.end(last - 1))
    return _From(spans, tuple(ons), ended, where)


class _Positions(Tokens):
    """The tokens of a statement by their positions in its text."""

    def at(self, offset: int) -> int:
        """Return the number of the token that begins at an offset; raise CannotEstimate if there is none."""
        number = self.after(offset)
        if number == len(self) or self.start(number) != offset:
            raise CannotEstimate("no word begins there")
        return number

    def after(self, offset: int) -> int:
        """Return the number of the first token at or after an offset."""
        return bisect_left(range(len(self)), offset, key=super().start)

    def start(self, number: int) -> int:
        if number >= len(self):
            raise CannotEstimate("the statement ends")
        return super().start(number)

    def stop(self, number: int, kinds: Sequence[str]) -> int:
        """Return the number of the first token of these kinds outside inner brackets, or of the closing one."""
        ends = (*kinds, *CLOSING)
        return next((one for one in self.flat((number, len(self))) if self.kind(one) in ends), len(self))


def _span(relation: Any) -> Span:
    first = relation.parts[0]
    alias = relation.args.get("alias")
    last = alias.this if alias is not None else relation.parts[-1]
    try:
        return int(first.meta["start"]), int(last.meta["end"]) + 1
    except KeyError as exc:
        raise CannotEstimate("a relation without a place") from exc
