"""Whole queries around a source, and failures, are the same in every engine."""

from __future__ import annotations

from typing import Any

import pytest

from ematix_flow.normalize import (
    derive,
    empty_to_null,
    lower,
    parse_date,
    parse_int,
    parse_numeric,
    parse_timestamp,
    sql,
    trim,
)
from ematix_flow.sql.expressions import normalized_select, output_type, render_chain
from ematix_flow.transforms import deduplicate_by, filter_where, limit, sample_pct
from tests.spark.engines import Engine

SOURCE = """
SELECT 1 AS id, ' Ann ' AS name, 3 AS amount, '2024-01-01' AS seen
UNION ALL SELECT 1, 'ann', 7, '2024-01-02'
UNION ALL SELECT 2, ' ', 5, '2024-01-03'
UNION ALL SELECT 3, 'Bob', 9, NULL -- the last;
UNION ALL SELECT 3, 'BOB', 8, '2024-01-05'
UNION ALL SELECT 4, 'Cyd', 1, '2024-01-06';
"""
COLUMNS: list[tuple[str, list[Any]]] = [
    ("id", []),
    ("name", [lower(), trim(), empty_to_null()]),
    ("amount", []),
    ("seen", [parse_date()]),
    ("twice", [derive("amount * 2"), sql("col + 1")]),
]
EACH = pytest.mark.parametrize("place", range(6), ids=["spark", "postgres", "mariadb", "mysql8", "sqlite", "duckdb"])


def _rows(engine: Engine, *transforms: Any, columns: list[tuple[str, list[Any]]] | None = None) -> set[tuple[Any, ...]]:
    wanted = COLUMNS if columns is None else columns
    select = normalized_select(wanted, SOURCE, pre_transforms=transforms, dialect=engine.dialect)
    return {
        tuple(str(value) if name == "seen" and value else value for (name, _), value in zip(wanted, row, strict=True))
        for row in engine.rows(select)
    }


@EACH
def test_columns_are_normalized_and_derived(engines: list[Engine], place: int) -> None:
    assert _rows(engines[place]) == {
        (1, "ann", 3, "2024-01-01", 7),
        (1, "ann", 7, "2024-01-02", 15),
        (2, None, 5, "2024-01-03", 11),
        (3, "bob", 9, None, 19),
        (3, "bob", 8, "2024-01-05", 17),
        (4, "cyd", 1, "2024-01-06", 3),
    }


@EACH
def test_transforms_see_normalized_columns_and_apply_in_order(engines: list[Engine], place: int) -> None:
    latest = deduplicate_by(keys=("id",), order_by="amount desc")
    assert _rows(
        engines[place], filter_where("name IS NOT NULL"), latest, filter_where("name <> 'cyd' and name like '%n%'")
    ) == {(1, "ann", 7, "2024-01-02", 15)}


@EACH
def test_null_is_the_largest_value_of_an_order(engines: list[Engine], place: int) -> None:
    first = _rows(engines[place], filter_where("id = 3"), deduplicate_by("id", order_by="seen desc"))
    last = _rows(engines[place], filter_where("id = 3"), deduplicate_by("id", order_by="seen"))
    assert first == {(3, "bob", 9, None, 19)}
    assert last == {(3, "bob", 8, "2024-01-05", 17)}


@EACH
def test_keys_and_words_that_differ_only_in_case_are_different(engines: list[Engine], place: int) -> None:
    plain: list[tuple[str, list[Any]]] = [("name", []), ("amount", [])]
    transforms = (filter_where("name in ('Bob', 'BOB', ' Ann')"), deduplicate_by("name"))
    assert _rows(engines[place], *transforms, columns=plain) == {("Bob", 9), ("BOB", 8)}


@EACH
def test_two_deduplications_follow_one_another(engines: list[Engine], place: int) -> None:
    found = _rows(
        engines[place], deduplicate_by("id", "name", order_by="amount"), deduplicate_by("name", order_by="amount desc")
    )
    assert {(row[0], row[2]) for row in found} == {(1, 3), (2, 5), (3, 8), (4, 1)}


@EACH
def test_limit_and_sample_take_some_of_the_rows(engines: list[Engine], place: int) -> None:
    engine = engines[place]
    assert len(_rows(engine, limit(2))) == 2
    assert len(_rows(engine, sample_pct(1))) == 6
    assert _rows(engine, sample_pct(0)) == set()
    ten = " UNION ALL ".join(f"SELECT {number} AS n" for number in range(10))
    many = f"SELECT a.n FROM ({ten}) AS a CROSS JOIN ({ten}) AS b CROSS JOIN (SELECT 1 AS c UNION ALL SELECT 2) AS c"
    some = normalized_select([("n", [])], many, pre_transforms=[sample_pct(0.5)], dialect=engine.dialect)
    assert 60 < len(engine.rows(some)) < 140


STRICT = [
    ([parse_int(on_failure="error")], "12", "12.5"),
    ([parse_numeric(4, 1, on_failure="error")], "99.94", "1000"),
    ([parse_date("DD.MM.YYYY", on_failure="error")], "29.02.2024", "29.02.2023"),
    ([parse_timestamp("YYYY-MM-DD HH24:MI", on_failure="error")], "2024-01-01 23:59", "2024-01-01 24:00"),
]


@EACH
@pytest.mark.parametrize(("markers", "good", "bad"), STRICT, ids=[repr(markers[0])[:15] for markers, _, _ in STRICT])
def test_an_unreadable_value_ends_the_statement_and_is_shown(
    engines: list[Engine], place: int, markers: list[Any], good: str, bad: str
) -> None:
    engine = engines[place]
    columns = [(render_chain(markers, "x", dialect=engine.dialect), output_type(markers))]
    engine.load("text", [good, None])
    assert [row[0] is None for row in engine.query(columns)] == [False, True]
    engine.load("text", [good, bad])
    with pytest.raises(Exception, match="cannot read") as failure:
        engine.query(columns)
    if engine.dialect != "mysql":
        assert bad in str(failure.value)
