"""Statements that aggregate with functions of the user's, and what they give for the trades of test_udfs."""

from __future__ import annotations

from typing import Any

AGGREGATES: dict[str, list[Any]] = {
    "SELECT g, vwap(price, qty) AS v, count(*) AS n, max(price) AS top FROM source GROUP BY g":
        [(None, None, 4, 7.0), ("a", 70 / 9, 12, 20.0), ("b", 5.0, 4, 5.0)],
    "SELECT g, vwap(price, qty) AS v, span(n) AS s FROM source GROUP BY g HAVING vwap(price, qty) > 4 ORDER BY v DESC":
        [("a", 70 / 9, "1..5"), ("b", 5.0, "3..3")],
    "SELECT vwap(price, qty) AS v FROM source": [(80 / 11,)],
    "SELECT DISTINCT g, vwap(price, qty) OVER (PARTITION BY g) AS v FROM source": [(None, None), ("a", 70 / 9), ("b", 5.0)],
}  # fmt: skip
MORE_AGGREGATES: dict[str, list[Any]] = {
    "SELECT g, vwap(price, qty) FILTER (WHERE price < 15) AS v FROM source GROUP BY g": [(None, None), ("a", 10.0), ("b", 5.0)],
    "SELECT g, vwap(DISTINCT price, qty) AS v FROM source GROUP BY g": [(None, None), ("a", 70 / 9), ("b", 5.0)],
    "SELECT g, round(vwap(price, qty) * 2 + 1, 1) AS v FROM source GROUP BY g": [(None, None), ("a", 16.6), ("b", 11.0)],
    "SELECT g, half(vwap(price, qty)) AS v FROM source GROUP BY g": [(None, None), ("a", 35 / 9), ("b", 2.5)],
    "SELECT half(price) AS p, vwap(price, qty) AS v FROM source WHERE g = 'a' GROUP BY half(price)":
        [(None, 0.0), (10.0, 20.0), (5.0, 10.0)],
    "SELECT upper(g) AS k, vwap(price, qty) AS v FROM source WHERE g IS NOT NULL GROUP BY k": [("A", 70 / 9), ("B", 5.0)],
    "SELECT g, vwap(half(price), n) AS v FROM source WHERE g = 'b' GROUP BY 1": [("b", 2.5)],
    "SELECT vwap(price, qty) AS v, count(*) AS n FROM source WHERE g = 'nobody'": [(None, 0)],
    "SELECT vwap(price, qty) AS v FROM source WHERE g = 'nobody'": [(None,)],
    "SELECT g, vwap(price, qty) AS v FROM source WHERE g = 'nobody' GROUP BY g": [],
    "SELECT g, vwap(price, qty) AS v FROM source GROUP BY ROLLUP (g) HAVING g IS NULL": [(None, None), (None, 80 / 11)],
    "SELECT v + 1 AS w FROM (SELECT vwap(price, qty) AS v FROM source WHERE g = 'b')": [(6.0,)],
    "WITH c AS (SELECT * FROM source WHERE g = 'b') SELECT g, vwap(price, qty) AS v FROM c GROUP BY g": [("b", 5.0)],
    "SELECT g FROM source GROUP BY g HAVING span(n) = '3..3'": [("b",)],
}  # fmt: skip
