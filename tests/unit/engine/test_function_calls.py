"""Calls of the user's functions in SQL: found where they are, refused where they cannot be, written anew in place."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from ematix_flow import udaf, udf
from ematix_flow.declare.udfs import functions_of
from ematix_flow.engine.sql.functions.argument_types import accepts_type
from ematix_flow.engine.sql.functions.calls import Call, Calls, mark_functions
from ematix_flow.engine.sql.functions.clauses import clauses_of
from ematix_flow.engine.sql.functions.partial_aggregation import PartialPlan, partial_plan
from ematix_flow.families.lake.source import parse_query
from ematix_flow.foundation.errors import SqlError


@udf(args=("Float64",), returns="Float64")
def half(values: Any) -> Any:
    return values


@udaf(args=("Float64", "Float64"), state=("Float64", "Float64"), returns="Float64", name="vwap")
class Vwap:
    def update_batch(self, prices: Any, qtys: Any) -> None: ...
    def merge_batch(self, nums: Any, dens: Any) -> None: ...
    def evaluate(self) -> Any:
        return pa.array([0.0])

    def state(self) -> Any:
        return (pa.array([0.0]), pa.array([0.0]))


FUNCTIONS = functions_of([half], [Vwap])


def calls_in(text: str) -> Calls:
    return Calls(text, FUNCTIONS.by_name)


def written(text: str) -> str:
    return calls_in(text).written(lambda call, args, tail: f"<{call.handle.name}:{'|'.join(args)}{tail}>")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT half(a) FROM source", "SELECT <half:a> FROM source"),
        ("SELECT HALF ( a ) FROM source;", "SELECT <half:a> FROM source"),
        ("SELECT half(half(a) + 1), 'half(a)', half FROM source", "SELECT <half:<half:a> + 1>, 'half(a)', half FROM source"),
        ("SELECT s.half(a), `half`(b) FROM s", "SELECT s.half(a), <half:b> FROM s"),
        ("SELECT vwap(a, coalesce(b, 0)) FROM source", "SELECT <vwap:a|coalesce(b, 0)> FROM source"),
        ("SELECT vwap(DISTINCT a, b) FILTER (WHERE half(c) > 1) OVER (PARTITION BY g) + 1 FROM source",
         "SELECT <vwap:a|b FILTER (WHERE <half:c> > 1) OVER (PARTITION BY g)> + 1 FROM source"),
        ("SELECT vwap(a, b) OVER w FROM source WINDOW w AS (ORDER BY a)", "SELECT <vwap:a|b OVER w> FROM source WINDOW w AS (ORDER BY a)"),
        ("SELECT half(a -- Grüße, half(\n + b) FROM source", "SELECT <half:a -- Grüße, half(\n + b> FROM source"),
        ("SELECT 'Çelik', half(`ünï`) FROM source", "SELECT 'Çelik', <half:`ünï`> FROM source"),
        ("SELECT half(CAST(x AS STRUCT<a: INT, b: INT>).a) FROM source", "SELECT <half:CAST(x AS STRUCT<a: INT, b: INT>).a> FROM source"),
        ("SELECT half(arr[0, 1]) FROM source", "SELECT <half:arr[0, 1]> FROM source"),
    ],
)  # fmt: skip
def test_calls_are_found_and_everything_else_stays_as_it_was_written(text: str, expected: str) -> None:
    assert written(text) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SELECT half() FROM source", r"half takes 1 argument\(s\), and 0 are given: half\(\)"),
        ("SELECT half(a, b) FROM source", r"takes 1 argument\(s\), and 2 are given"),
        ("SELECT vwap(price) FROM source", r"vwap takes 2 argument\(s\), and 1 are given: vwap\(price\)"),
        ("SELECT vwap(*, a) FROM source", "takes values"),
        ("SELECT vwap(prices => a, qtys => b) FROM source", "arguments by name"),
        ("SELECT vwap(a, b ORDER BY c) FROM source", "ORDER BY among its arguments"),
        ("SELECT vwap(a, b) WITHIN GROUP (ORDER BY c) FROM source", "WITHIN GROUP"),
        ("SELECT half(DISTINCT a) FROM source", "function of one row"),
        ("SELECT half(a) OVER (PARTITION BY g) FROM source", "function of one row"),
        ("SELECT half(a FROM source", "closing bracket"),
        ("SELECT half('a) FROM source", "cannot be read"),
    ],
)
def test_a_call_that_cannot_be_right_is_refused_with_its_name(text: str, said: str) -> None:
    with pytest.raises(SqlError, match=said):
        written(text)


def test_names_survive_a_translation_that_knows_functions_of_that_name() -> None:
    text, names = mark_functions('SELECT vwap("a", half(b)) FROM source', "postgres", FUNCTIONS)
    assert text == 'SELECT flow_udf_vwap("a", flow_udf_half(b)) FROM source'
    assert set(names) == {"flow_udf_vwap", "flow_udf_half"}


@pytest.mark.parametrize(
    ("wanted", "given", "text", "fits"),
    [
        ("Float64", "int", "a", True), ("Float64", "decimal(10,2)", "a", True), ("Float64", "string", "a", False),
        ("Float32", "double", "a", False), ("Float32", "decimal(3,1)", "1.5", True), ("Int64", "int", "a", True),
        ("Int32", "bigint", "a", False), ("Int8", "int", "100", True), ("Int8", "int", "- 128", True),
        ("Int8", "int", "200", False), ("UInt8", "smallint", "a", True), ("UInt8", "int", "a", False),
        ("UInt8", "int", "-1", False), ("UInt64", "decimal(20,0)", "a", True), ("UInt64", "bigint", "a", True),
        ("Utf8", "string", "a", True), ("Utf8", "varchar(3)", "a", True), ("Utf8", "bigint", "a", False),
        ("Utf8", "string collate UTF8_LCASE", "a", True), ("Boolean", "boolean", "a", True), ("Boolean", "int", "1", False),
        ("Binary", "binary", "a", True), ("Binary", "string", "a", False), ("Int64", "timestamp", "a", False),
        ("Float64", "void", "NULL", True), ("Int64", "array<int>", "a", False),
    ],
)  # fmt: skip
def test_values_that_would_have_to_be_bent_do_not_fit(wanted: str, given: str, text: str, fits: bool) -> None:
    assert accepts_type(wanted, given, text) is fits


def clauses(text: str) -> Any:
    return clauses_of(calls_in(text).tokens, parse_query(text))


def test_a_select_is_taken_apart_into_its_clauses() -> None:
    found = clauses(
        "WITH c AS (SELECT 1) SELECT a, b + 1 AS more, (SELECT max(x) FROM t) top FROM source s JOIN u ON s.i = u.i "
        "WHERE a IS DISTINCT FROM b GROUP BY a, 2 HAVING count(*) > 1 ORDER BY a LIMIT 3"
    )
    tokens = found.tokens
    assert [tokens.slice(item.span) for item in found.items] == ["a", "b + 1", "(SELECT max(x) FROM t)"]
    assert [item.alias for item in found.items] == [None, "more", "top"]
    assert tokens.slice(found.source) == "FROM source s JOIN u ON s.i = u.i"
    assert tokens.slice(found.where) == "a IS DISTINCT FROM b"
    assert tokens.slice(found.group) == "a, 2"
    assert tokens.slice(found.rest) == "HAVING count(*) > 1 ORDER BY a LIMIT 3"
    assert found.select > 0


@pytest.mark.parametrize(
    "text", ["SELECT a FROM s UNION SELECT b FROM s", "SELECT DISTINCT a FROM s", "SELECT 1", "(SELECT a FROM s)"]
)
def test_anything_but_a_plain_select_has_no_clauses(text: str) -> None:
    assert clauses(text) is None


def plan(text: str, columns: Any = ("g", "h", "price", "qty", "ts")) -> PartialPlan | None:
    calls = calls_in(text)

    def write(call: Call, args: list[str], tail: str) -> str:
        return f"flow_{call.handle.name}({', '.join(args)}){tail}"

    return partial_plan(calls, parse_query(text), write=write, merging={Vwap: "flow_vwap_merge"}, columns=columns)


def test_an_aggregate_becomes_a_statement_over_rows_and_one_over_states() -> None:
    made = plan(
        "SELECT date_trunc('minute', ts) AS minute, vwap(price, qty) AS v FROM source WHERE qty > 0 GROUP BY 1 HAVING vwap(price, qty) > 2 ORDER BY minute"
    )
    assert made is not None
    assert made.inner == (
        "SELECT date_trunc('minute', ts) AS flow_k0, CAST(price AS DOUBLE) AS flow_a0, CAST(qty AS DOUBLE) AS flow_a1 "
        "FROM source WHERE qty > 0"
    )
    merged = "flow_vwap_merge(collect_list(named_struct('s0', flow_s0_0, 's1', flow_s0_1)))"
    assert made.outer("states") == (
        f"SELECT flow_k0 AS `minute`, {merged} AS `v` FROM `states` GROUP BY flow_k0 HAVING {merged} > 2 ORDER BY minute"
    )
    assert made.schema(["timestamp"]) == "flow_k0 timestamp, flow_s0_0 DOUBLE, flow_s0_1 DOUBLE"


def test_calls_that_say_the_same_share_their_states() -> None:
    made = plan(
        "SELECT g, vwap(price, qty) AS a, VWAP( price,qty ) + 1 AS b, vwap(qty, price) AS c FROM source GROUP BY g"
    )
    assert made is not None
    assert len(made.calls) == 2


@pytest.mark.parametrize(
    "text",
    [
        "SELECT g, vwap(price, qty) FROM source GROUP BY g",
        "SELECT vwap(price, qty) FROM source",
        "SELECT s.g, round(vwap(s.price, s.qty), 2) AS v FROM source AS s GROUP BY s.g",
        "SELECT g AS k, vwap(price, qty) AS v FROM source GROUP BY k",
        "WITH c AS (SELECT * FROM source) SELECT g, vwap(price, qty) FROM c GROUP BY g",
        "SELECT g, h, CASE WHEN vwap(price, qty) > 1 THEN 'dear' ELSE 'cheap' END AS what FROM source GROUP BY g, h LIMIT 3",
        "SELECT half(price) AS p, vwap(price, qty) AS v FROM source GROUP BY half(price)",
        "SELECT g, half(vwap(price, qty)) AS v FROM source GROUP BY g",
    ],
)
def test_plain_aggregates_are_reported_in_parts(text: str) -> None:
    assert plan(text) is not None


@pytest.mark.parametrize(
    "text",
    [
        "SELECT g, vwap(price, qty), count(*) FROM source GROUP BY g",
        "SELECT g, vwap(price, qty), try_sum(1) FROM source GROUP BY g",
        "SELECT g, vwap(DISTINCT price, qty) FROM source GROUP BY g",
        "SELECT g, vwap(price, qty) FILTER (WHERE qty > 1) FROM source GROUP BY g",
        "SELECT g, vwap(price, qty) OVER (PARTITION BY g) FROM source",
        "SELECT g, vwap(price, qty) FROM source GROUP BY ROLLUP (g)",
        "SELECT g, vwap(price, qty) FROM source GROUP BY ALL",
        "SELECT g, vwap(price, qty), (SELECT max(qty) FROM source) FROM source GROUP BY g",
        "SELECT g, v FROM (SELECT g, vwap(price, qty) AS v FROM source GROUP BY g) WHERE v > 1",
        "SELECT DISTINCT g, vwap(price, qty) FROM source GROUP BY g",
        "SELECT g, vwap(price, qty) FROM source GROUP BY g UNION SELECT g, 1 FROM source",
        "SELECT g, half(price) FROM source",
    ],
)
def test_everything_else_is_left_to_the_whole_group(text: str) -> None:
    assert plan(text) is None


def test_a_key_inside_of_another_expression_is_not_taken_for_it() -> None:
    made = plan("SELECT h * price + qty AS x, vwap(price, qty) AS v FROM source GROUP BY price + qty, h")
    assert made is not None
    assert "flow_k1 * price + qty AS `x`" in made.before  # which Spark refuses over states: the whole group is used
