"""Statements of other dialects over micro-batches give what the named system gives, or are refused."""

from __future__ import annotations

import math
from contextlib import ExitStack
from typing import Any

import pytest

from ematix_flow import udf
from ematix_flow.foundation.errors import MissingColumn, SqlError
from tests.streams.dialect_samples import (
    COLUMNS,
    DATAFUSION,
    GROUPS,
    ONLY,
    ONLY_GROUPS,
    ONLY_WHOLE,
    REFUSED,
    ROWS,
    VALUES,
    WHOLE,
)
from tests.streams.sample_functions import Vwap
from tests.streams.sql_session import open_until, spark, transform

__all__ = ["open_until", "spark"]


@udf(args=("Int64",), returns="Int64")
def same(values: Any) -> Any:
    return values


@pytest.fixture(scope="module")
def source(spark: Any) -> Any:
    said = f"SELECT a, b, CAST(d AS DOUBLE) AS d, n, s, ts FROM VALUES {VALUES} AS t(a, b, d, n, s, ts)"
    rows = spark.sql(said).selectExpr(
        "CAST(a AS BIGINT) AS a", "CAST(b AS BIGINT) AS b", "d", "CAST(n AS DECIMAL(10, 2)) AS n", "s", "ts"
    )
    return rows.coalesce(1)


@pytest.fixture(scope="module")
def systems(postgres_url: str) -> Any:
    """What each system itself answers."""
    import duckdb
    import psycopg

    own = duckdb.connect()
    own.execute("SET TimeZone = 'UTC'")
    own.execute(f"CREATE TABLE source ({COLUMNS.format(double='DOUBLE', text='TEXT')})")
    own.execute(f"INSERT INTO source VALUES {VALUES}")
    with psycopg.connect(postgres_url, autocommit=True) as other:
        other.execute("SET TimeZone = 'UTC'")
        other.execute(f"CREATE TEMPORARY TABLE source ({COLUMNS.format(double='FLOAT8', text='TEXT')})".encode())
        other.execute(f"INSERT INTO source VALUES {VALUES}".encode())
        yield {"duckdb": lambda sql: own.execute(sql).fetchall(), "postgres": lambda sql: other.execute(sql.encode()).fetchall()}  # fmt: skip


def plain(value: Any) -> Any:
    """A value in which only its amount, its text or its moment counts."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if hasattr(value, "tzinfo"):
        return value.replace(tzinfo=None)
    if isinstance(value, (int, float)) or hasattr(value, "is_signed"):
        return "NaN" if math.isnan(value) else round(float(value), 9)
    return value


def answered(found: list[Any]) -> list[Any]:
    return sorted(([plain(value) for value in row] for row in found), key=str)


def in_one(expressions: list[str]) -> str:
    return f"SELECT {', '.join(f'{item} AS x{place}' for place, item in enumerate(expressions))} FROM source"


def unlike(expressions: list[str], wanted: list[Any], found: list[Any]) -> dict[str, Any]:
    """The expressions whose columns differ."""
    columns = zip(expressions, zip(*wanted, strict=True), zip(*found, strict=True), strict=True)
    plainly = [(item, [plain(value) for value in own], [plain(value) for value in ours]) for item, own, ours in columns]
    return {item: (own, ours) for item, own, ours in plainly if own != ours}


@pytest.mark.full
@pytest.mark.parametrize("dialect", ["duckdb", "postgres"])
def test_expressions_mean_what_they_mean_in_the_named_system(
    source: Any, systems: Any, open_until: ExitStack, dialect: str
) -> None:
    for expressions in ([*ROWS, *ONLY[dialect]], [*GROUPS, *ONLY_GROUPS[dialect]]):
        said = in_one(expressions)
        found = transform(said, dialect=dialect).apply(source, open_until).collect()
        assert unlike(expressions, systems[dialect](said), found) == {}


@pytest.mark.parametrize(
    "dialect", [pytest.param("duckdb", marks=pytest.mark.full("PostgreSQL shows the levels")), "postgres"]
)
def test_statements_of_several_levels_mean_the_same(source: Any, systems: Any, dialect: str) -> None:
    for said in [*WHOLE, *ONLY_WHOLE[dialect]]:
        with ExitStack() as open_until:
            found = transform(said, dialect=dialect).apply(source, open_until).collect()
            assert answered(found) == answered(systems[dialect](said)), said


@pytest.mark.full
def test_expressions_mean_what_datafusion_says_they_mean(source: Any, open_until: ExitStack) -> None:
    expressions = list(DATAFUSION)
    found = transform(in_one(expressions), dialect="datafusion").apply(source, open_until).collect()
    wanted = list(zip(*DATAFUSION.values(), strict=True))
    assert unlike(expressions, wanted, found) == {}


@pytest.mark.full("functions are called in Spark SQL by the same way")
def test_what_a_function_gives_has_its_declared_type(source: Any, open_until: ExitStack) -> None:
    said = "SELECT same(a)/2 AS x, vwap(d, 1)/2 AS y FROM source GROUP BY same(a)/2"
    made = transform(said, dialect="postgres", udfs=(same,), aggregate_udfs=(Vwap,))
    assert answered(made.apply(source, open_until).collect()) == [[-3.0, -1.75], [1.0, 0.75], [3.0, 1.25]]


@pytest.mark.full("functions are called in Spark SQL by the same way")
def test_functions_keep_their_names_in_every_dialect(source: Any, open_until: ExitStack) -> None:
    for dialect in ("duckdb", "postgres", "datafusion"):
        said = 'SELECT s, vwap(d, same(b)) AS v FROM source GROUP BY "s"'
        made = transform(said, dialect=dialect, udfs=(same,), aggregate_udfs=(Vwap,))
        assert len(made.apply(source, open_until).collect()) == 3, dialect


@pytest.mark.parametrize(("dialect", "expression", "said"), REFUSED)
def test_what_would_mean_something_else_is_refused(
    source: Any, open_until: ExitStack, dialect: str, expression: str, said: str
) -> None:
    with pytest.raises(SqlError, match=said) as refused:
        transform(f"SELECT {expression} AS x FROM source", dialect=dialect).apply(source, open_until)
    assert refused.value.hint


@pytest.mark.full
def test_what_has_no_value_is_an_error_in_postgresql(source: Any, open_until: ExitStack) -> None:
    for expression in ("ln(a)", "sqrt(d)", "a/b"):
        made = transform(f"SELECT {expression} AS x FROM source", dialect="postgres").apply(source, open_until)
        with pytest.raises(Exception, match=r"that has none|ivision by zero"):
            made.collect()


def test_a_wrong_name_is_reported_as_in_spark_sql(source: Any, open_until: ExitStack) -> None:
    with pytest.raises(MissingColumn, match="aa"):
        transform("SELECT aa / 2 AS x FROM source", dialect="postgres").apply(source, open_until)
