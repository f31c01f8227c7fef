"""Edits the order of the relations in the text of a SELECT; all other text is unchanged."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ematix_flow.foundation.lazy_imports import exp, sqlglot
from ematix_flow.sql.joins.predicate_evaluation import CannotEstimate
from ematix_flow.sql.joins.scopes import JoinScope, conjuncts

_SEPARATORS = ("COMMA", "JOIN", "INNER", "CROSS")
_ENDS = ("WHERE", "GROUP_BY", "HAVING", "ORDER_BY", "SORT_BY", "CLUSTER_BY", "DISTRIBUTE_BY", "LIMIT", "OFFSET",
         "UNION", "EXCEPT", "INTERSECT", "SEMICOLON")  # fmt: skip
_OPENING, _CLOSING = ("L_PAREN", "L_BRACKET", "L_BRACE"), ("R_PAREN", "R_BRACKET", "R_BRACE")

Span = tuple[int, int]


@dataclass(frozen=True)
class _From:
    """The positions of a FROM's relations, its ON conditions and the WHERE that follows."""

    relations: tuple[Span, ...]
    ons: tuple[Span, ...]
    end: int
    where: Span | None


def permute_relations(query: str, scope: JoinScope, order: Sequence[int]) -> str:
    """Return the statement with the relations of one scope in another order; raise Unclear if its text is unusual.

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
    tokens = _Tokens(query)
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
    if tokens.kind(place) not in ("", *_ENDS, *_CLOSING):
        raise CannotEstimate(tokens.kind(place))
    where: Span | None = None
    ended = tokens.end(place - 1)
    if tokens.kind(place) == "WHERE":
        last = tokens.stop(place + 1, _ENDS)
        where = (tokens.start(place + 1), tokens.end(last - 1))
    return _From(spans, tuple(ons), ended, where)


class _Tokens:
    """The tokens of a statement and their positions."""

    def __init__(self, query: str) -> None:
        self._tokens = sqlglot.tokenize(query, read="spark")
        self._starts = [token.start for token in self._tokens]

    def at(self, offset: int) -> int:
        """Return the index of the token that begins at an offset; raise Unclear if there is none."""
        place = bisect_left(self._starts, offset)
        if place >= len(self._starts) or self._starts[place] != offset:
            raise CannotEstimate("no word begins there")
        return place

    def after(self, offset: int) -> int:
        """Return the index of the first token at or after an offset."""
        return bisect_left(self._starts, offset)

    def kind(self, place: int) -> str:
        """Return the type of a token, an empty text after the last one."""
        return str(self._tokens[place].token_type.name) if place < len(self._tokens) else ""

    def start(self, place: int) -> int:
        """Return the offset at which a token begins."""
        if place >= len(self._tokens):
            raise CannotEstimate("the statement ends")
        return int(self._tokens[place].start)

    def end(self, place: int) -> int:
        """Return the offset after a token."""
        return int(self._tokens[place].end) + 1

    def stop(self, place: int, kinds: Sequence[str]) -> int:
        """Return the index of the first token of these kinds outside inner parentheses, or of the closing one."""
        depth = 0
        while self.kind(place):
            kind = self.kind(place)
            if depth == 0 and (kind in kinds or kind in _CLOSING):
                return place
            depth += (kind in _OPENING) - (kind in _CLOSING)
            place += 1
        return place


def _span(relation: Any) -> Span:
    first = relation.parts[0]
    alias = relation.args.get("alias")
    last = alias.this if alias is not None else relation.parts[-1]
    try:
        return int(first.meta["start"]), int(last.meta["end"]) + 1
    except KeyError as exc:
        raise CannotEstimate("a relation without a place") from exc
