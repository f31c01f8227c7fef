"""How many rows conditions leave, and which order of joins is cheapest: pure functions."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
import sqlglot

from ematix_flow.sql.joins import join_order, table_statistics
from ematix_flow.sql.joins.join_order import JoinLink, JoinRelation, cheapest_order, order_as_written
from ematix_flow.sql.joins.scopes import conjuncts
from ematix_flow.sql.joins.selectivity import joined_share, rows_left
from ematix_flow.sql.joins.table_statistics import ColumnStats, TableStats

_DAYS_OF_1995 = 9131


def column(kind: str, values: list[Any], *, distinct: float | None = None) -> ColumnStats:
    known = [value for value in values if value is not None]
    return ColumnStats(kind, min(known), max(known), values.count(None), distinct or len(set(known)), tuple(values))


ORDERS = TableStats(
    1_000_000,
    10**8,
    {},
    {
        "id": column(table_statistics.INTEGER, [number * 1000 for number in range(1000)], distinct=1_000_000),
        "State": column(table_statistics.TEXT, ["open", "done", "done", "lost"] * 250),
        "day": column(table_statistics.DATE, [_DAYS_OF_1995 + number % 500 for number in range(1000)]),
        "at": column(
            table_statistics.TIMESTAMP, [(_DAYS_OF_1995 + number % 500) * 86_400_000_000 for number in range(1000)]
        ),
        "due": column(
            table_statistics.DATE, [_DAYS_OF_1995 + number % 500 + (1 if number % 4 else -1) for number in range(1000)]
        ),
        "price": column(table_statistics.DECIMAL, [None if number % 10 == 0 else number / 2 for number in range(1000)]),
        "note": ColumnStats(table_statistics.OTHER),
    },
)
ORDERS = TableStats(ORDERS.rows, ORDERS.size, {name: it.kind for name, it in ORDERS.columns.items()}, {
    **ORDERS.columns, "price": ColumnStats(table_statistics.DECIMAL, 0.5, 499.5, 100_000, 900, ORDERS.columns["price"].sample),
})  # fmt: skip


def share(condition: str, table: TableStats = ORDERS) -> float:
    tree = sqlglot.parse_one(f"SELECT 1 FROM t WHERE {condition}", read="spark")
    return rows_left(table, list(conjuncts(tree.args["where"].this))) / table.rows


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("state = 'done'", 0.5),
        ("'done' = STATE", 0.5),
        ("state <> 'done'", 0.5),
        ("state IN ('open', 'lost')", 0.5),
        ("NOT state IN ('open', 'lost')", 0.5),
        ("state LIKE '%o%'", 1.0),
        ("state LIKE 'd_ne'", 0.5),
        ("substring(state, 1, 1) = 'o'", 0.25),
        ("state = 'open' OR state = 'lost'", 0.5),
        ("state = 'open' AND state = 'lost'", 0.0),
        ("day < DATE '1995-09-08'", 0.5),
        ("day >= DATE '1994-09-08' + INTERVAL '1' YEAR", 0.5),
        ("day BETWEEN '1995-01-01' AND '1996-12-31'", 1.0),
        ("at < TIMESTAMP '1995-09-08 00:00:00'", 0.5),
        ("at < DATE '1995-09-08'", 0.5),
        ("due > day", 0.75),
        ("price IS NULL", 0.1),
        ("price IS NOT NULL", 0.9),
        ("price > 250", 0.45),
        ("NOT price > 250", 0.45),
        ("price > 2 * 125", 0.45),
        ("id = 7", 0.000001),
        ("id IN (1, 2, 3)", 0.000003),
        ("id < -5", 0.0),
    ],
)
def test_what_simple_conditions_leave(condition: str, expected: float) -> None:
    assert share(condition) == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize(
    "condition",
    ["note = 3", "unseen > 4", "rand(id) > 1", "state RLIKE 'x'", "id IN (SELECT 1)", "state = CAST(id AS STRING)",
     "EXISTS (SELECT 1)", "day = 'no day'", "day > DATE '9999-12-31' + INTERVAL '1' DAY", "price > 1e400"],
)  # fmt: skip
def test_what_is_not_understood_gets_a_default(condition: str) -> None:
    assert 0 < share(condition) <= 1


def test_dependent_conditions_are_counted_together() -> None:
    assert share("day >= DATE '1995-09-08' AND due >= DATE '1995-09-07'") == pytest.approx(0.5, abs=0.02)


def test_the_sample_of_a_sorted_file_does_not_stand_for_its_range() -> None:
    first = ColumnStats(table_statistics.INTEGER, 0, 1_000_000, 0, 1_000_000, tuple(range(1000)))
    table = TableStats(1_000_000, 10**8, {"id": table_statistics.INTEGER}, {"id": first})
    assert share("id < 500000", table) == pytest.approx(0.5)
    assert share("id BETWEEN 250000 AND 500000", table) == pytest.approx(0.25)
    assert share("500000 <= id", table) == pytest.approx(0.5)


def test_a_huge_claimed_range_and_an_empty_table_do_no_harm() -> None:
    wide = ColumnStats(table_statistics.INTEGER, -(2**63), 2**63 - 1, 0, 5, (1, 2, 3))
    assert 0 < share("v > 4", TableStats(10, 10, {}, {"v": wide})) <= 1
    real = ColumnStats(table_statistics.REAL, -1.7e308, 1.7e308, 0, 5, (1.0, 2.0))
    assert 0 < share("v > 4", TableStats(10, 10, {}, {"v": real})) <= 1
    assert rows_left(TableStats(0, 0), []) == 1


def test_a_key_of_two_columns_is_as_distinct_as_its_table() -> None:
    assert joined_share([(1000, 50)], (1e6, 50)) == 1 / 1000
    assert joined_share([(200_000, 200_000), (10_000, 10_000)], (6e6, 8e5)) == 1 / 8e5
    assert joined_share([(None, 20)], (5, 20)) == 1 / 20
    assert joined_share([(None, None)], (5, 20)) is None


def linked(*pairs: tuple[int, int, float]) -> list[JoinLink]:
    return [JoinLink(frozenset({one, other}), part) for one, other, part in pairs]


def test_a_selective_table_is_joined_before_others() -> None:
    relations = [JoinRelation(1e6), JoinRelation(1e6), JoinRelation(10)]
    links = linked((0, 1, 1e-6), (0, 2, 1e-3))
    best = cheapest_order(relations, links)
    assert best is not None
    assert set(best.order[:2]) == {0, 2}
    assert best.rows == pytest.approx((1e4, 1e4))
    assert order_as_written(relations, links).order == (0, 1, 2)


def test_the_result_of_small_tables_is_not_worth_a_shuffle_of_the_large_one() -> None:
    megabyte = 1e6
    relations = [JoinRelation(25, megabyte), JoinRelation(1e4, megabyte), JoinRelation(6e6, 1000 * megabyte)]
    links = linked((0, 1, 1 / 25), (1, 2, 1e-4))
    best = cheapest_order(relations, links, broadcast=48 * megabyte)
    assert best is not None
    assert best.order == (1, 2, 0)


def test_products_are_never_chosen() -> None:
    assert cheapest_order([JoinRelation(1), JoinRelation(1), JoinRelation(1)], linked((0, 1, 1.0))) is None
    loose = [*linked((0, 1, 1.0)), JoinLink(frozenset({1, 2}), 0.1, is_equality=False)]
    assert cheapest_order([JoinRelation(1), JoinRelation(1), JoinRelation(1)], loose) is None


@pytest.mark.parametrize("seed", range(20))
def test_dynamic_programming_finds_the_best_of_all_orders(seed: int) -> None:
    chance = random.Random(seed)
    count = chance.randint(3, 6)
    relations = [JoinRelation(10 ** chance.uniform(0, 6), 10 ** chance.uniform(3, 9)) for _ in range(count)]
    links = linked(*((chance.randrange(item), item, 10 ** -chance.uniform(0, 6)) for item in range(1, count)))
    best = cheapest_order(relations, links, broadcast=1e7)
    assert best is not None
    estimate = join_order._OrderEstimate(relations, links, 1e7)
    every = [
        estimate.ordered(order).cost
        for order in itertools.permutations(range(count))
        if all(order[place] in estimate.reached(frozenset(order[:place])) for place in range(1, count))
    ]
    assert best.cost == pytest.approx(min(every))


def test_many_relations_are_ordered_greedily() -> None:
    relations = [JoinRelation(1e6 / (number + 1)) for number in range(40)]
    best = cheapest_order(relations, linked(*((number, number + 1, 1e-5) for number in range(39))))
    assert best is not None
    assert sorted(best.order) == list(range(40))
