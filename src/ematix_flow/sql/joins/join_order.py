"""The cheapest order of inner joins, as a pure function of estimated rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_MOST_EXACT = 10
_SHUFFLED = 4.0
"""The cost of sending a row to another task, relative to a lookup in the hash table (1)."""
_BUILT = 3.0
"""The cost of inserting a row into the hash table that is broadcast to every task."""


@dataclass(frozen=True)
class JoinRelation:
    """A table: the rows that its own conditions leave, and the size in bytes that Spark's planner estimates for it."""

    rows: float
    size: float = math.inf
    read: float = 0.0
    """The rows read from the table: equal in every order, but a part of the statement's cost."""


@dataclass(frozen=True)
class JoinLink:
    """A condition between relations: the share of all combinations of their rows that meets it.

    Only an equality of columns connects one relation to the next; other conditions apply as early as possible.
    """

    relations: frozenset[int]
    share: float
    is_equality: bool = True


@dataclass(frozen=True)
class JoinOrder:
    """An order, the estimated rows after each of its joins, and the cost of reading and joining the relations."""

    order: tuple[int, ...]
    rows: tuple[float, ...]
    cost: float


def order_as_written(
    relations: Sequence[JoinRelation], links: Sequence[JoinLink], *, broadcast: float = 0
) -> JoinOrder:
    """Return the order in which Spark joins relations as they are written: it avoids only cross products.

    >>> order_as_written([JoinRelation(1), JoinRelation(2), JoinRelation(3)], [JoinLink(frozenset({0, 2}), 1), JoinLink(frozenset({1, 2}), 1)]).order
    (0, 2, 1)
    """
    order, rest = [0], list(range(1, len(relations)))
    while rest:
        taken = frozenset(order)
        linked = (
            item for item in rest if any(item in link.relations and link.relations <= taken | {item} for link in links)
        )
        chosen = next(linked, rest[0])
        order.append(chosen)
        rest.remove(chosen)
    return _OrderEstimate(relations, links, broadcast).ordered(tuple(order))


def cheapest_order(
    relations: Sequence[JoinRelation], links: Sequence[JoinLink], *, broadcast: float = 0
) -> JoinOrder | None:
    """Return the order with the lowest cost, None where the equalities do not connect every relation.

    The cost is the rows into and out of each join, and the transfer: one side is broadcast to every task if Spark
    estimates it at no more than `broadcast` bytes, otherwise both sides are shuffled.
    """
    estimate = _OrderEstimate(relations, links, broadcast)
    order = _exact(estimate) if len(relations) <= _MOST_EXACT else _greedy(estimate)
    return estimate.ordered(order) if order is not None else None


class _OrderEstimate:
    """Rows and costs of sets of relations; the rows of a set do not depend on the order of its joins."""

    def __init__(self, relations: Sequence[JoinRelation], links: Sequence[JoinLink], broadcast: float) -> None:
        self.relations = relations
        self._broadcast = broadcast
        self._links = links
        self._rows: dict[frozenset[int], float] = {}

    def rows(self, members: frozenset[int]) -> float:
        """Return the number of rows of these relations joined."""
        if members not in self._rows:
            rows = 1.0
            for number in members:
                rows *= max(1.0, self.relations[number].rows)
            for link in self._links:
                if len(link.relations) > 1 and link.relations <= members:
                    rows *= link.share
            self._rows[members] = max(1.0, rows)
        return self._rows[members]

    def step(self, members: frozenset[int], one_more: int) -> float:
        """Return the cost of joining one more relation.

        Spark estimates the size of a join as the product of its sides, and decides by that whether to broadcast a side.
        """
        left, right = self.rows(members), self.relations[one_more].rows
        rows_before = self.rows(members | {one_more})
        size, other = math.prod(self.relations[number].size for number in members), self.relations[one_more].size
        if min(size, other) > self._broadcast:
            return _SHUFFLED * (left + right) + rows_before
        built, streamed = (left, right) if size < other else (right, left)
        return _BUILT * built + streamed + rows_before

    def reached(self, members: frozenset[int]) -> list[int]:
        """Return the relations that an equality connects to the members."""
        numbers = {
            number
            for link in self._links
            if link.is_equality and len(link.relations - members) == 1 and link.relations & members
            for number in link.relations - members
        }
        return sorted(numbers)

    def ordered(self, order: tuple[int, ...]) -> JoinOrder:
        """Return an order with its rows and cost."""
        rows, cost = [], sum(relation.read for relation in self.relations)
        for number in range(1, len(order)):
            members = frozenset(order[:number])
            cost += self.step(members, order[number])
            rows.append(self.rows(members | {order[number]}))
        return JoinOrder(order, tuple(rows), cost)


def _exact(estimate: _OrderEstimate) -> tuple[int, ...] | None:
    """Return the best order by dynamic programming over sets of relations."""
    count = len(estimate.relations)
    best: Mapping[frozenset[int], tuple[float, tuple[int, ...]]] = {
        frozenset({item}): (0.0, (item,)) for item in range(count)
    }
    for _ in range(count - 1):
        larger: dict[frozenset[int], tuple[float, tuple[int, ...]]] = {}
        for members, (cost, order) in best.items():
            for item in estimate.reached(members):
                candidate = (cost + estimate.step(members, item), (*order, item))
                known = larger.get(members | {item})
                if known is None or candidate < known:
                    larger[members | {item}] = candidate
        best = larger
    return next(iter(best.values()))[1] if best else None


def _greedy(estimate: _OrderEstimate) -> tuple[int, ...] | None:
    """Return the best of the orders that start at each relation and always add the cheapest next join."""
    orders: list[tuple[float, tuple[int, ...]]] = []
    for first in range(len(estimate.relations)):
        order: tuple[int, ...] = (first,)
        cost = 0.0
        while len(order) < len(estimate.relations):
            members = frozenset(order)
            steps = [(estimate.step(members, item), item) for item in estimate.reached(members)]
            if not steps:
                return None
            cost, order = cost + min(steps)[0], (*order, min(steps)[1])
        orders.append((cost, order))
    return min(orders)[1]
