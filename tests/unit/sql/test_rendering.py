"""The SQL that chains become."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from ematix_flow.foundation.errors import DeclarationError
from ematix_flow.normalize import (
    clamp,
    compose_chain,
    date_trunc,
    default,
    derive,
    empty_to_null,
    lower,
    nullif,
    parse_bool,
    parse_date,
    parse_int,
    parse_numeric,
    parse_timestamp,
    regex_replace,
    sql,
    to_timezone,
    trim,
)
from ematix_flow.sql.expressions import DIALECTS, CannotRender, literal, output_type, quote, render_chain, transpile
from ematix_flow.sql.expressions.number_text import up_to


def test_markers_apply_from_left_to_right() -> None:
    chain = [lower(), trim(), empty_to_null()]
    assert render_chain(chain, "x", dialect="spark") == "NULLIF(TRIM(LOWER(CAST(`x` AS STRING))), '')"


def test_a_chain_without_normalizers_is_the_column() -> None:
    assert [render_chain([], "a b", dialect=dialect) for dialect in DIALECTS] == [
        "`a b`",
        '"a b"',
        "`a b`",
        '"a b"',
        '"a b"',
    ]


def test_markers_that_are_no_normalizers_are_passed_over() -> None:
    assert compose_chain(["pk", trim()], "s.name") == "TRIM(CAST(s.name AS TEXT))"


def test_derive_needs_no_column() -> None:
    assert render_chain([derive("a + 1"), sql("col * 2")], None, dialect="postgres") == "((a + 1) * 2)"


def test_a_time_of_a_known_type_is_not_read_from_its_text() -> None:
    assert render_chain([parse_timestamp()], "x", dialect="postgres", column_kind="timestamp_tz") == '"x"'
    assert render_chain([parse_date()], "x", dialect="spark", column_kind="date") == "`x`"


def test_a_wall_clock_of_a_known_type_becomes_an_instant() -> None:
    instant = render_chain([to_timezone("Asia/Tokyo")], "x", dialect="spark", column_kind="timestamp")
    assert instant == (
        "CAST(CONVERT_TIMEZONE('Asia/Tokyo', CURRENT_TIMEZONE(), CAST(`x` AS TIMESTAMP_NTZ)) AS TIMESTAMP_LTZ)"
    )


def test_a_text_column_loses_its_collation_even_where_its_type_is_known() -> None:
    trimmed = render_chain([trim()], "x", dialect="mysql", column_kind="string")
    assert trimmed == "TRIM((CONVERT(`x` USING utf8mb4) COLLATE utf8mb4_bin))"


def test_a_chain_that_does_not_begin_with_derive_needs_a_column() -> None:
    with pytest.raises(ValueError, match="needs a column"):
        render_chain([trim()], None, dialect="postgres")


def test_derive_after_another_marker_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing may stand before it"):
        compose_chain([trim(), derive("1")], "x")


def test_an_unknown_dialect_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(ValueError, match="did you mean 'postgres'"):
        render_chain([], "x", dialect="postgress")


@pytest.mark.parametrize(
    ("markers", "kind"),
    [
        ([], None),
        ([trim()], "text"),
        ([parse_int()], "big_int"),
        ([parse_int(on_failure="error")], "big_int"),
        ([parse_int(), clamp(0, 5), default(1)], "big_int"),
        ([parse_numeric(5, 2), nullif(0)], "numeric"),
        ([parse_bool()], "boolean"),
        ([parse_date()], "date"),
        ([parse_timestamp()], "timestamp_tz"),
        ([parse_timestamp(), to_timezone("Europe/Berlin")], "timestamp"),
        ([parse_timestamp(), to_timezone("UTC"), to_timezone("UTC")], "timestamp_tz"),
        ([to_timezone("UTC"), date_trunc("day")], "timestamp"),
        ([default("x")], "text"),
        ([default(1)], None),
        ([sql("col")], None),
    ],
    ids=repr,
)
def test_the_kind_of_a_chains_result_is_known(markers: list[Any], kind: str | None) -> None:
    assert output_type(markers) == kind


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("text", ["it's", "back\\slash", "per%cent", "new\nline", "${x}", "ü😀"])
def test_text_survives_being_written_down(dialect: str, text: str) -> None:
    written = literal(text, dialect)
    inside = written[1:-1].replace("''", "'") if dialect != "spark" else written[1:-1].replace("\\'", "'")
    if dialect in ("spark", "mysql"):
        inside = inside.replace("\\u0024", "$").replace("\\\\", "\\")
    assert (written[0], written[-1], inside) == ("'", "'", text)


def test_values_are_written_exactly() -> None:
    moment = datetime(2024, 1, 2, 3, 4, 5, 6, tzinfo=timezone(timedelta(hours=2)))
    assert literal(moment, "postgres") == "CAST('2024-01-02 01:04:05.000006+00:00' AS TIMESTAMPTZ)"
    assert literal(moment, "mysql") == "TIMESTAMP '2024-01-02 01:04:05.000006'"
    assert literal(datetime(1, 1, 1), "sqlite") == "'0001-01-01 00:00:00.000000+00:00'"
    assert literal(date(2024, 1, 2), "duckdb") == "DATE '2024-01-02'"
    assert literal(1e-7, "spark") == "0.0000001"
    assert literal(1e300, "duckdb") == "1E+300"
    assert literal(Decimal("1E+2"), "mysql") == "100"
    assert literal(-5, "postgres") == "(-5)"
    assert (literal(True, "spark"), literal(False, "sqlite")) == ("TRUE", "0")


def test_names_are_quoted_whole() -> None:
    assert quote('we"ird', "postgres") == '"we""ird"'
    assert quote("we`ird", "spark") == "`we``ird`"
    with pytest.raises(ValueError, match="cannot be a name"):
        quote("", "mysql")


def test_the_word_col_is_replaced_as_an_expression_and_not_in_strings_or_names() -> None:
    assert (
        transpile("col || 'col' || t.col || color", "postgres", replacing_col="(X)") == "(X) || 'col' || t.col || color"
    )
    assert transpile("COL", "spark", replacing_col="`x`") == "`x`"
    assert transpile("col", "duckdb") == "col"


def test_user_sql_is_written_in_the_dialect() -> None:
    assert transpile("col::text || 'x'", "spark", replacing_col="`a`") == "CAST(`a` AS STRING) || 'x'"
    assert transpile("coalesce(a, 'b') || c", "mysql") == "CONCAT(COALESCE(a, 'b'), c)"
    assert transpile("`odd name` + 1", "postgres") == '"odd name" + 1'
    assert transpile("lower(a)", "sqlite") == "FLOW_LOWER(a)"
    assert transpile("lower(a)", "postgres") == 'LOWER(a COLLATE "und-x-icu")'
    assert transpile("trim(a)", "duckdb") == "TRIM(a, ' ')"
    assert transpile("d >= date '2024-01-01'", "mysql") == "d >= CAST('2024-01-01' AS DATE)"


@pytest.mark.parametrize("text", ["a b c d", "1; DROP TABLE x", "a, b", "x FROM y", "SELECT", "(", "a WHERE b"])
def test_what_is_not_one_expression_is_refused(text: str) -> None:
    with pytest.raises(DeclarationError, match="not an SQL expression"):
        transpile(text, "spark")


@pytest.mark.parametrize("dialect", ["mysql", "sqlite", "duckdb"])
@pytest.mark.parametrize(
    "text", ["split_part(col, '@', 2)", "col / 2", "round(col, 2)", "my_function(col)", "col::int"]
)
def test_sql_that_may_mean_something_else_is_left_to_spark(dialect: str, text: str) -> None:
    with pytest.raises(CannotRender) as answer:
        transpile(text, dialect, replacing_col="x")
    assert (answer.value.op, answer.value.dialect) == ("sql", dialect)
    assert transpile(text, "spark", replacing_col="x")
    assert transpile(text, "postgres", replacing_col="x")


def test_comparisons_that_depend_on_a_collation_do_not_run_in_mysql() -> None:
    for text in ("a = b", "name < 'm'"):
        with pytest.raises(CannotRender, match="collations"):
            transpile(text, "mysql")
    assert transpile("n > 5 AND seen >= '2024-01-01'", "mysql") == "n > 5 AND seen >= '2024-01-01'"


def test_only_a_zone_other_than_utc_is_left_to_spark_by_mysql() -> None:
    assert render_chain([to_timezone("UTC")], "x", dialect="mysql") == "CAST(`x` AS DATETIME(6))"
    with pytest.raises(CannotRender, match="Europe/Berlin"):
        render_chain([to_timezone("Europe/Berlin")], "x", dialect="mysql")


def test_patterns_an_engine_reads_otherwise_are_left_to_spark() -> None:
    with pytest.raises(CannotRender, match="longest"):
        render_chain([regex_replace("foo|foobar", "")], "x", dialect="postgres")
    with pytest.raises(CannotRender, match="longest"):
        render_chain([regex_replace("a+b*?c", "")], "x", dialect="postgres")
    with pytest.raises(CannotRender, match="look around"):
        render_chain([regex_replace("a(?=b)", "")], "x", dialect="duckdb")
    assert "REGEXP_REPLACE" in render_chain([regex_replace(r"^\s+|\s+$", "")], "x", dialect="postgres")


def test_the_limit_of_64_bits_is_a_pattern() -> None:
    pattern = re.compile(f"(?:{up_to(2**63 - 1)})")
    for number in (0, 9, 10, 922337203685477580, 2**63 - 1, 9199999999999999999):
        assert pattern.fullmatch(str(number)), number
    for number in (2**63, 9230000000000000000, 10**19):
        assert not pattern.fullmatch(str(number)), number


def test_rendering_a_chain_loads_no_engine() -> None:
    program = (
        "import sys; from ematix_flow.normalize import *;"
        "compose_chain([lower(), parse_timestamp()], 'x');"
        "sys.exit(', '.join(m for m in ('pyspark', 'pyarrow', 'sqlglot', 'duckdb', 'psycopg') if m in sys.modules))"
    )
    assert (
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False).stderr.strip()
        == ""
    )
