"""`{start}` and `{end}` become instants of the dialect, wherever SQL means something by them and nowhere else."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from ematix_flow.foundation.errors import SqlError
from ematix_flow.sql.expressions import bind_window, window_marks
from ematix_flow.sql.expressions.literals import DIALECTS

EDGES = {
    "start": datetime(2026, 1, 1, tzinfo=timezone.utc),
    "end": datetime(2026, 1, 1, 6, 30, tzinfo=timezone.utc),
}
QUERY = "SELECT * FROM t WHERE at >= {start} AND at < {end}"


@pytest.mark.parametrize(
    ("dialect", "start", "end"),
    [
        ("postgres", "CAST('2026-01-01 00:00:00.000000+00:00' AS TIMESTAMPTZ)", "CAST('2026-01-01 06:30:00.000000+00:00' AS TIMESTAMPTZ)"),
        ("duckdb", "CAST('2026-01-01 00:00:00.000000+00:00' AS TIMESTAMPTZ)", "CAST('2026-01-01 06:30:00.000000+00:00' AS TIMESTAMPTZ)"),
        ("mysql", "TIMESTAMP '2026-01-01 00:00:00.000000'", "TIMESTAMP '2026-01-01 06:30:00.000000'"),
        ("spark", "TIMESTAMP_LTZ '2026-01-01 00:00:00.000000+00:00'", "TIMESTAMP_LTZ '2026-01-01 06:30:00.000000+00:00'"),
        ("sqlite", "'2026-01-01'", "'2026-01-01 06:30:00'"),
    ],
)  # fmt: skip
def test_an_edge_is_a_literal_of_the_dialect(dialect: str, start: str, end: str) -> None:
    assert bind_window(QUERY, EDGES, dialect) == f"SELECT * FROM t WHERE at >= {start} AND at < {end}"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_comments_and_other_braces_stay_as_they_are(dialect: str) -> None:
    query = "SELECT 1 -- from {start}\n/* {end} */ WHERE a = '{begin}' AND b >= {start}"
    found = bind_window(query, EDGES, dialect)
    assert found.startswith("SELECT 1 -- from {start}\n/* {end} */ WHERE a = '{begin}' AND b >= ")
    assert "b >= {start}" not in found


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("quoted", ["'{start}'", "'since {start}'"])
def test_an_edge_inside_quotes_is_refused_and_says_how_to_write_it(dialect: str, quoted: str) -> None:
    with pytest.raises(SqlError) as refused:
        bind_window(f"SELECT * FROM t WHERE at >= {quoted} AND at < {{end}}", EDGES, dialect)
    assert "inside quotes" in refused.value.what
    assert "without quotes" in (refused.value.hint or "")


def test_text_around_an_edge_is_kept_to_the_letter() -> None:
    query = "SELECT  a ,\n'it''s' AS \"Odd Name\"  FROM t  WHERE at>={start}::date  AND d<CAST({end} AS date) ;"
    found = bind_window(query, EDGES, "postgres")
    assert (
        found.replace("CAST('2026-01-01 00:00:00.000000+00:00' AS TIMESTAMPTZ)", "{start}").replace(
            "CAST('2026-01-01 06:30:00.000000+00:00' AS TIMESTAMPTZ)", "{end}"
        )
        == query
    )


def test_a_look_at_the_text_finds_both_edges() -> None:
    assert window_marks(QUERY) == {"start", "end"}
    assert window_marks("SELECT 1 WHERE a = '{begin}'") == frozenset()
