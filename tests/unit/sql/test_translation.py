"""Statements of other dialects in Spark SQL."""

from __future__ import annotations

import pytest

from ematix_flow.foundation.errors import SqlError
from ematix_flow.sql.translation.translate import translate_to_spark


class Unknown:
    """There is no Spark to ask: these statements tell their types themselves."""

    def types(self, query: str, count: int) -> list[str] | None:
        raise AssertionError(query)

    def check(self, query: str) -> None:
        raise AssertionError(query)


def test_spark_sql_stays_as_it_is() -> None:
    text = "SELECT  a -- as written\nFROM source"
    assert translate_to_spark(text, "spark", Unknown()) == text


@pytest.mark.parametrize(
    ("dialect", "text", "expected"),
    [
        ("postgres", 'SELECT "a" AS t FROM source', "SELECT `a` AS t FROM source"),
        ("postgres", "SELECT 7 / 2 AS h FROM source", "SELECT 7 DIV 2 AS h FROM source"),
        ("duckdb", "SELECT 7 / 2 AS h, 7 // 2 AS w FROM source", "SELECT 7 / 2 AS h, 7 DIV 2 AS w FROM source"),
        ("datafusion", "SELECT make_array(a, make_array(b)) AS ab FROM source", "SELECT ARRAY(a, ARRAY(b)) AS ab FROM source"),
        ("datafusion", "SELECT to_timestamp_millis(a) AS t FROM source", "SELECT TIMESTAMP_MILLIS(a) AS t FROM source"),
    ],
)  # fmt: skip
def test_other_dialects_are_translated_with_their_meaning(dialect: str, text: str, expected: str) -> None:
    assert translate_to_spark(text, dialect, Unknown()) == expected


def test_the_documented_pivot_is_the_same_in_datafusions_words() -> None:
    made = translate_to_spark(
        "SELECT date_trunc('minute', ts) AS minute, array_agg(named_struct('strike', strike, 'bid', bid)) AS strikes_json "
        "FROM source WHERE underlying = 'SPXW' GROUP BY 1",
        "datafusion",
        Unknown(),
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
        translate_to_spark(text, dialect, Unknown())
