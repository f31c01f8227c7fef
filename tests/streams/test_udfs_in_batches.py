"""`transform_sql` and the user's functions in batch pipelines: the source runs its own SQL, Spark runs this."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest

from ematix_flow import (
    JSONB,
    BigInt,
    Double,
    DuckDBConnection,
    ObjectStoreLocalConnection,
    PostgresConnection,
    Text,
    ematix,
    pk,
)
from ematix_flow.declare import registry
from ematix_flow.foundation.errors import DataError, DeclarationError, MissingColumn, PlanError, SqlError
from ematix_flow.lineage import lineage_of
from tests.streams.sample_functions import Vwap
from tests.streams.sql_session import spark
from tests.streams.test_udfs import half, picky

__all__ = ["spark"]

TRADES = [("a", 10.0, 1.0, 1), ("a", 20.0, 3.0, 2), ("b", 5.0, 2.0, 3)]


@ematix.table(schema="main")
class PerGroup:
    g: Annotated[Text, pk()]
    v: Double | None
    n: BigInt


@ematix.table(schema="main")
class Documents:
    g: Annotated[Text, pk()]
    trades: JSONB


@pytest.fixture(autouse=True)
def _nothing_declared(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("EMATIX_FLOW_RUN_LOG_PATH", str(tmp_path / "run_log.db"))
    registry.clear()
    yield
    registry.clear()


@pytest.fixture
def target(tmp_path: Path) -> Any:
    return DuckDBConnection("warehouse", path=str(tmp_path / "warehouse.duckdb"))


TWIN = pytest.mark.full("DuckDB shows the same")


@pytest.fixture(params=["duckdb", pytest.param("postgres", marks=TWIN), pytest.param("files", marks=TWIN)])
def trades(request: pytest.FixtureRequest, spark: Any, tmp_path: Path) -> Iterator[tuple[Any, str]]:
    """The same trades in three systems: a connection, and the table's name there."""
    if request.param == "files":
        frame = spark.createDataFrame(TRADES, "g STRING, price DOUBLE, qty DOUBLE, n BIGINT")
        frame.write.parquet(str(tmp_path / "lake" / "trades"))
        yield ObjectStoreLocalConnection("lake", path=str(tmp_path / "lake"), format="parquet"), "trades"
        return
    if request.param == "duckdb":
        import duckdb

        with duckdb.connect(str(tmp_path / "shop.duckdb")) as own:
            own.execute("CREATE TABLE trades (g TEXT, price DOUBLE, qty DOUBLE, n BIGINT)")
            own.executemany("INSERT INTO trades VALUES (?, ?, ?, ?)", TRADES)
        yield DuckDBConnection("shop", path=str(tmp_path / "shop.duckdb")), "main.trades"
        return
    import psycopg

    url = request.getfixturevalue("fresh_postgres")
    with psycopg.connect(url, autocommit=True) as own:
        own.execute(b"CREATE TABLE trades (g TEXT, price FLOAT8, qty FLOAT8, n BIGINT)")
        own.cursor().executemany(b"INSERT INTO trades VALUES (%s, %s, %s, %s)", TRADES)
        yield PostgresConnection("shop", url=url), "public.trades"
        own.execute(b"DROP TABLE trades")


def loaded(target: Any, table: str = "per_group") -> list[Any]:
    import duckdb

    with duckdb.connect(target.path, read_only=True) as own:
        return own.execute(f"SELECT * EXCLUDE (_loaded_at, _batch_id) FROM main.{table} ORDER BY 1").fetchall()


def pipeline(into: Any, source: Any, sql: str, **options: Any) -> Any:
    decorate = ematix.pipeline(
        **{"target": PerGroup, "mode": "merge", "target_connection": into, "source_connection": source, "name": "groups", **options}
    )  # fmt: skip
    return decorate(lambda: sql)


AGGREGATED = "SELECT g, vwap(price, qty) AS v, count(*) AS n FROM source GROUP BY g"


def test_a_load_aggregates_with_functions_of_its_own(trades: Any, target: Any) -> None:
    source, table = trades
    made = pipeline(
        target, source, f"SELECT * FROM {table} WHERE n < 3", transform_sql=AGGREGATED, aggregate_udfs=[Vwap]
    )
    result = made.sync()
    assert loaded(target) == [("a", 17.5, 2)]
    assert (result.targets[0].lane, result.targets[0].path) == ("spark", "cross_db")
    assert "transform_sql runs in Spark" in result.targets[0].lane_reason


@pytest.mark.full
def test_rows_are_made_of_rows_and_unknown_columns_are_named(trades: Any, target: Any) -> None:
    source, table = trades
    sql = f"SELECT * FROM {table}"
    made = pipeline(
        target, source, sql, transform_sql="SELECT g || n AS g, half(price) AS v, n FROM source", udfs=[half]
    )
    made.sync()
    assert [row[:2] for row in loaded(target)] == [("a1", 5.0), ("a2", 10.0), ("b3", 2.5)]
    wrong = pipeline(
        target, source, sql, transform_sql="SELECT g, half(prize) AS v, n FROM source", udfs=[half], name="wrong"
    )
    with pytest.raises(MissingColumn) as missing:
        wrong.sync()
    assert missing.value.hint == "did you mean 'price'?"
    report = wrong.validate()
    assert not report.ok
    assert "prize" in report.errors[0]


@pytest.mark.full
@pytest.mark.parametrize("trades", [pytest.param("postgres", marks=TWIN), "duckdb"], indirect=True)
def test_a_source_table_is_taken_whole(trades: Any, target: Any) -> None:
    source, table = trades
    decorate = ematix.pipeline(target=PerGroup, mode="truncate", target_connection=target, source_connection=source,
                               source_table=table, transform_sql=AGGREGATED, aggregate_udfs=[Vwap])  # fmt: skip

    @decorate
    def whole() -> None: ...

    whole.sync()
    assert loaded(target) == [("a", 17.5, 2), ("b", 5.0, 1)]


@pytest.mark.full
def test_a_dataframe_goes_through_the_same_sql(target: Any) -> None:
    @ematix.pipeline(
        target=PerGroup, mode="merge", target_connection=target, transform_sql=AGGREGATED, aggregate_udfs=[Vwap]
    )
    def frames(spark: Any) -> Any:
        return spark.createDataFrame(TRADES, "g STRING, price DOUBLE, qty DOUBLE, n BIGINT")

    frames.sync()
    assert loaded(target) == [("a", 17.5, 2), ("b", 5.0, 1)]


@pytest.mark.full
def test_even_inside_one_database_spark_runs_it(tmp_path: Path, target: Any) -> None:
    import duckdb

    with duckdb.connect(target.path) as own:
        own.execute(
            "CREATE TABLE trades AS SELECT * FROM (VALUES ('a', 1.0::DOUBLE, 2.0::DOUBLE, 1)) t(g, price, qty, n)"
        )
    made = pipeline(target, target, "SELECT * FROM main.trades", transform_sql=AGGREGATED, aggregate_udfs=[Vwap])
    planned = made.preview()
    assert (planned.targets[0].path, planned.targets[0].path_reason) == ("cross_db", "transform_sql runs in Spark")
    made.sync()
    assert loaded(target) == [("a", 1.0, 1)]


@pytest.mark.full
def test_groups_become_json_documents_in_one_pass(trades: Any, target: Any) -> None:
    source, table = trades
    sql = "SELECT g, array_agg(named_struct('price', price, 'half', half(price), 'none', CAST(NULL AS INT))) AS trades FROM source GROUP BY 1"
    made = pipeline(
        target, source, f"SELECT * FROM {table} WHERE g = 'b'", target=Documents, transform_sql=sql, udfs=[half]
    )
    made.sync()
    assert loaded(target, "documents") == [("b", '[{"price":5.0,"half":2.5,"none":null}]')]


@pytest.mark.full
def test_another_dialect_is_translated(trades: Any, target: Any) -> None:
    source, table = trades
    sql = 'SELECT "g" || n::text AS g, n / 2 AS v, n FROM source'
    pipeline(target, source, f"SELECT * FROM {table}", transform_sql=sql, dialect="postgres").sync()
    assert loaded(target) == [("a1", 0.0, 1), ("a2", 1.0, 2), ("b3", 1.0, 3)]


def test_a_row_on_which_a_function_fails_ends_the_load_with_its_name(trades: Any, target: Any) -> None:
    source, table = trades
    made = pipeline(
        target,
        source,
        f"SELECT g, n + 11 AS n FROM {table}",
        transform_sql="SELECT g || n AS g, NULL AS v, picky(n) AS n FROM source",
        udfs=[picky],
    )
    with pytest.raises(DataError, match="udf picky failed: ValueError: thirteen; row: values=13"):
        made.sync()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"udfs": [half]}, "no transform_sql="),
        ({"aggregate_udfs": [Vwap]}, "no transform_sql="),
        ({"transform_sql": "SELECT 1 FROM source", "udfs": [Vwap]}, "does not belong into udfs="),
        (
            {"transform_sql": "SELECT 1 FROM source", "udfs": [half, half], "aggregate_udfs": [len]},
            "aggregate_udfs= does not take",
        ),
        ({"transform_sql": "SELECT 1 FROM source", "dialect": "postgre"}, "dialect='postgre'"),
        ({"transform_sql": "  "}, "takes a query"),
        ({"transform_sql": "SELECT 1 FROM source", "column_map": {"g": "h"}}, "column_map does not go with"),
    ],
)
def test_keywords_that_do_not_go_together_are_refused(target: Any, options: Any, said: str) -> None:
    with pytest.raises(DeclarationError, match=said):
        pipeline(target, None, "SELECT 1", **options)


@pytest.mark.full
def test_what_is_wrong_with_the_sql_is_a_plan_error(trades: Any, target: Any) -> None:
    source, table = trades
    for sql, kind in (("SELECT g, vwap(price) AS v, n FROM source", SqlError), ("SELECT g, vwap(g, qty) AS v, 1 AS n FROM source GROUP BY g", PlanError),
                      ("SELECT g, 1 AS v, 2 AS V, n FROM source", PlanError)):  # fmt: skip
        made = pipeline(target, source, f"SELECT * FROM {table}", transform_sql=sql, aggregate_udfs=[Vwap])
        with pytest.raises(kind):
            made.preview()
        registry.clear()


@pytest.mark.full
def test_lineage_does_not_guess_what_the_sql_makes(target: Any) -> None:
    source = DuckDBConnection("shop", path="shop.duckdb")
    made = pipeline(target, source, "SELECT * FROM main.trades", transform_sql=AGGREGATED, aggregate_udfs=[Vwap])
    told = lineage_of(made.spec, source="SELECT * FROM main.trades")
    assert [item.name for item in told.inputs] == ["main.trades"]
    assert not told.outputs[0].origins
