"""From SQL to columns: exactly where each comes from, or that it cannot be told."""

from __future__ import annotations

import pytest

from ematix_flow.lineage.query import QueryLineage, Untraceable


def origins(query: str, column: str, *, dialect: str = "postgres", **known: list[str]) -> set[str] | None:
    """`table.column` with what is made of it: `=` as it is, `~` changed, `Σ` aggregated, `?` only deciding."""
    found = QueryLineage(query, dialect=dialect, known=known).of(column)
    signs = {"IDENTITY": "=", "TRANSFORMATION": "~", "AGGREGATION": "Σ"}
    if found is None:
        return None
    return {f"{signs.get(use.subtype, '?')}{'.'.join(use.table)}.{use.column}" for use in found}


def conditions(query: str, **more: str) -> set[str]:
    found = QueryLineage(query, dialect=more.get("dialect", "postgres")).row_conditions()
    return {f"{use.subtype} {'.'.join(use.table)}.{use.column}" for use in found}


@pytest.mark.parametrize(
    ("query", "column", "expected"),
    [
        ("SELECT id FROM raw.people", "id", {"=raw.people.id"}),
        ("SELECT p.id AS person FROM raw.people p", "person", {"=raw.people.id"}),
        ('SELECT "Id" FROM raw.people', "Id", {"=raw.people.Id"}),
        ("SELECT * FROM raw.people", "id", {"=raw.people.id"}),
        ("SELECT lower(name) AS name FROM people", "name", {"~people.name"}),
        ("SELECT a + b AS c FROM t", "c", {"~t.a", "~t.b"}),
        ("SELECT sum(amount) AS total FROM orders GROUP BY day", "total", {"Σorders.amount"}),
        ("SELECT sum(a * b) AS total FROM t", "total", {"Σt.a", "Σt.b"}),
        ("SELECT 1 AS one, count(*) AS n FROM t", "one", set()),
        ("SELECT count(*) AS n FROM t", "n", set()),
        ("SELECT CASE WHEN a > 0 THEN b ELSE c END AS d FROM t", "d", {"?t.a", "~t.b", "~t.c"}),
        ("SELECT CASE kind WHEN 'x' THEN b END AS d FROM t", "d", {"?t.kind", "~t.b"}),
        ("SELECT sum(v) OVER (PARTITION BY p ORDER BY o) AS s FROM t", "s", {"Σt.v", "?t.p", "?t.o"}),
        ("SELECT CAST(a AS bigint) AS a FROM t", "a", {"~t.a"}),
        ("SELECT (a) AS a FROM t", "a", {"=t.a"}),
    ],
)
def test_a_column_of_one_table(query: str, column: str, expected: set[str]) -> None:
    assert origins(query, column) == expected


JOIN = "SELECT o.id, c.name, o.amount * c.rate AS value FROM raw.orders o JOIN crm.customers c ON c.id = o.customer_id"


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ("id", {"=raw.orders.id"}),
        ("name", {"=crm.customers.name"}),
        ("value", {"~raw.orders.amount", "~crm.customers.rate"}),
        ("nothing", None),
    ],
)
def test_a_column_of_a_join(column: str, expected: set[str] | None) -> None:
    assert origins(JOIN, column) == expected


def test_the_columns_that_join_filter_and_group_decide_about_rows() -> None:
    query = JOIN + " WHERE o.state = 'paid' AND c.active"
    assert conditions(query) == {
        "JOIN raw.orders.customer_id", "JOIN crm.customers.id", "FILTER raw.orders.state", "FILTER crm.customers.active",
    }  # fmt: skip
    assert conditions("SELECT day, count(*) FROM t GROUP BY 1 HAVING max(v) > 3") == {
        "GROUP_BY t.day", "FILTER t.v",
    }  # fmt: skip
    assert conditions("SELECT a AS z FROM t ORDER BY z LIMIT 5") == {"SORT t.a"}
    assert conditions("SELECT a FROM t ORDER BY a") == set()
    assert conditions("SELECT a FROM t JOIN u USING (k)") == set()


def test_a_star_of_one_of_several_tables_is_known() -> None:
    query = "SELECT o.*, c.name FROM orders o JOIN customers c ON o.cid = c.id"
    assert origins(query, "amount") == {"=orders.amount"}
    assert origins(query, "name") == {"=customers.name"}


def test_a_star_over_a_join_needs_to_know_the_tables() -> None:
    query = "SELECT * FROM orders o JOIN customers c ON o.cid = c.id"
    assert origins(query, "amount") is None
    known = {"orders": ["cid", "amount"], "customers": ["id", "name"]}
    assert origins(query, "amount", **known) == {"=orders.amount"}
    assert origins(query, "name", **known) == {"=customers.name"}
    assert origins(query, "name", customers=["id", "name"]) == {"=customers.name"}
    assert origins(query, "amount", customers=["id", "name"]) == {"=orders.amount"}


def test_a_column_that_two_tables_have_is_not_guessed() -> None:
    known = {"a": ["id", "x"], "b": ["id", "y"]}
    assert origins("SELECT * FROM a JOIN b ON a.id = b.id", "id", **known) is None
    assert origins("SELECT id FROM a JOIN b USING (id)", "id", **known) == {"=a.id", "=b.id"}


def test_an_unqualified_column_belongs_to_the_only_table_that_may_have_it() -> None:
    query = "SELECT amount FROM orders JOIN customers ON orders.cid = customers.id"
    assert origins(query, "amount") is None
    assert origins(query, "amount", customers=["id", "name"]) == {"=orders.amount"}


def test_named_queries_and_subqueries_are_looked_through() -> None:
    query = """
        WITH paid AS (SELECT id, customer_id AS cid, amount - fee AS net FROM raw.orders WHERE state = 'paid'),
             sums AS (SELECT cid, sum(net) AS total FROM paid GROUP BY cid)
        SELECT s.total, c.name FROM sums s JOIN (SELECT id, upper(name) AS name FROM crm.customers) c ON c.id = s.cid
    """
    assert origins(query, "total") == {"Σraw.orders.amount", "Σraw.orders.fee"}
    assert origins(query, "name") == {"~crm.customers.name"}
    assert conditions(query) == {
        "JOIN crm.customers.id", "JOIN raw.orders.customer_id", "FILTER raw.orders.state",
        "GROUP_BY raw.orders.customer_id",
    }  # fmt: skip
    assert QueryLineage(query, dialect="postgres").tables == [("raw", "orders"), ("crm", "customers")]


def test_a_name_of_a_with_query_is_no_table_unless_it_is_one() -> None:
    query = "WITH orders AS (SELECT id FROM raw.orders) SELECT id FROM orders"
    assert QueryLineage(query, dialect="postgres").tables == [("raw", "orders")]


def test_both_sides_of_a_union_count_by_position() -> None:
    query = "SELECT id, name FROM a UNION ALL SELECT k, upper(v) FROM b"
    assert origins(query, "name") == {"=a.name", "~b.v"}
    assert origins("SELECT * FROM a UNION SELECT * FROM b", "id") == {"=a.id", "=b.id"}


def test_a_recursive_query_ends() -> None:
    query = """
        WITH RECURSIVE tree AS (
            SELECT id, parent FROM nodes UNION ALL SELECT n.id, n.parent FROM nodes n JOIN tree t ON n.parent = t.id
        ) SELECT * FROM tree
    """
    assert origins(query, "id") == {"=nodes.id"}


def test_a_scalar_subquery_brings_its_own_conditions() -> None:
    query = "SELECT p.id, (SELECT max(v) FROM visits w WHERE w.person = p.id) AS last FROM people p"
    assert origins(query, "last") == {"Σvisits.v", "?visits.person", "?people.id"}
    assert origins("SELECT a FROM t WHERE a IN (SELECT x FROM u WHERE y = 1)", "a") == {"=t.a"}
    assert conditions("SELECT a FROM t WHERE a IN (SELECT x FROM u WHERE y = 1)") == {
        "FILTER t.a", "FILTER u.x", "FILTER u.y",
    }  # fmt: skip
    assert conditions("SELECT a FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.k = t.k)") == {
        "FILTER u.k", "FILTER t.k",
    }  # fmt: skip


def test_rows_out_of_a_function_come_from_what_it_takes() -> None:
    assert origins("SELECT x.v FROM t LATERAL VIEW explode(t.items) x AS v", "v", dialect="spark") == {"~t.items"}
    assert origins("SELECT g FROM generate_series(1, 10) AS s(g)", "g") == set()


def test_the_words_of_other_dialects_are_understood() -> None:
    assert origins("SELECT * EXCEPT (secret) FROM t", "secret", dialect="spark") is None
    assert origins("SELECT * EXCEPT (secret) FROM t", "id", dialect="spark") == {"=t.id"}
    assert origins("SELECT * EXCLUDE (x) FROM t", "id", dialect="duckdb") == {"=t.id"}
    assert origins("SELECT * REPLACE (upper(name) AS name) FROM t", "name", dialect="duckdb") == {"~t.name"}
    assert origins("SELECT `a b` FROM `my table`", "a b", dialect="mysql") == {"=my table.a b"}
    assert origins("SELECT cast(d ->> 'x' AS int) AS x FROM t", "x") == {"~t.d"}


def test_a_hash_is_masking() -> None:
    (use,) = QueryLineage("SELECT md5(mail) AS h FROM t", dialect="postgres").of("h") or ()
    assert use.masking is True


@pytest.mark.parametrize("query", ["DELETE FROM t", "SELECT 1; SELECT 2", "SELEC x FRM", "SELECT * FROM a, b AS a"])
def test_what_is_no_query_cannot_be_traced(query: str) -> None:
    with pytest.raises(Untraceable):
        QueryLineage(query, dialect="postgres")
