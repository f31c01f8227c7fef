"""Statements of other dialects in Spark SQL."""

from __future__ import annotations

import pytest

from ematix_flow.expressions.translation import to_spark
from ematix_flow.foundation.errors import SqlError


def test_spark_sql_stays_as_it_is() -> None:
    text = "SELECT  a -- as written\nFROM source"
    assert to_spark(text, "spark") == text


@pytest.mark.parametrize(
    ("dialect", "text", "expected"),
    [
        ("postgres", 'SELECT "a"::text AS t FROM source', "SELECT CAST(`a` AS STRING) AS t FROM source"),
        ("postgres", "SELECT qty / 2 AS h, price / 2 AS p FROM source", "SELECT qty DIV 2 AS h, price / 2 AS p FROM source"),
        ("postgres", "SELECT (qty + 1) / (2 * qty) AS h FROM source", "SELECT (qty + 1) DIV (2 * qty) AS h FROM source"),
        ("postgres", "SELECT sum(qty) / count(*) AS m FROM source", "SELECT SUM(qty) DIV COUNT(*) AS m FROM source"),
        ("postgres", "SELECT sum(big) / count(*) AS m FROM source", "SELECT SUM(big) / COUNT(*) AS m FROM source"),
        ("datafusion", "SELECT sum(big) / count(*) AS m FROM source", "SELECT SUM(big) DIV COUNT(*) AS m FROM source"),
        ("duckdb", "SELECT qty / 2 AS h FROM source", "SELECT qty / 2 AS h FROM source"),
        ("datafusion", "SELECT qty / 2 AS h FROM source", "SELECT qty DIV 2 AS h FROM source"),
        ("datafusion", "SELECT arrow_cast(a, 'Int64') AS a FROM source", "SELECT CAST(a AS BIGINT) AS a FROM source"),
        ("datafusion", "SELECT make_array(a, b) AS ab FROM source", "SELECT ARRAY(a, b) AS ab FROM source"),
        ("datafusion", "SELECT to_timestamp_millis(a) AS t FROM source", "SELECT TIMESTAMP_MILLIS(a) AS t FROM source"),
    ],
)  # fmt: skip
def test_other_dialects_are_translated_with_their_meaning(dialect: str, text: str, expected: str) -> None:
    assert to_spark(text, dialect, whole={"qty": "int", "big": "bigint"}) == expected


def test_the_documented_pivot_is_the_same_in_datafusions_words() -> None:
    made = to_spark(
        "SELECT date_trunc('minute', ts) AS minute, array_agg(named_struct('strike', strike, 'bid', bid)) AS strikes_json "
        "FROM source WHERE underlying = 'SPXW' GROUP BY 1",
        "datafusion",
    )
    assert made == (
        "SELECT DATE_TRUNC('MINUTE', ts) AS minute, COLLECT_LIST(NAMED_STRUCT('strike', strike, 'bid', bid)) AS strikes_json "
        "FROM source WHERE underlying = 'SPXW' GROUP BY 1"
    )


@pytest.mark.parametrize(
    ("dialect", "text", "said"),
    [
        ("postgres", "SELECT FROM WHERE", "is not that of postgres"),
        ("duckdb", "DELETE FROM source", "one query is expected"),
        ("postgres", "SELECT 1; SELECT 2", "one query is expected"),
        ("datafusion", "SELECT arrow_cast(a, 'Duration(Second)') FROM source", "no twin in Spark SQL"),
    ],
)
def test_what_cannot_be_translated_is_refused_with_a_sentence(dialect: str, text: str, said: str) -> None:
    with pytest.raises(SqlError, match=said):
        to_spark(text, dialect)
