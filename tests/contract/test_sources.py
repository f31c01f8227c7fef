"""Sources: SQL runs where the data is, errors name what is wrong, reads are restricted and cut where that is exact."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import Annotated, Any

import pytest

from ematix_flow import BigInt, Source, Text, TimestampTZ, ematix, pk
from ematix_flow.backends.catalog import backend_for
from ematix_flow.backends.postgres import source as postgres_source
from ematix_flow.foundation.errors import FlowError, MissingColumn, MissingTable, SqlError
from tests.contract import native
from tests.contract.conftest import Systems
from tests.contract.loading import columns, day, declare, unique
from tests.harness.base import Harness

OWN_WORDS = {
    "postgres": "split_part(version(), ' ', 1)",
    "mariadb": "lower(regexp_replace(version(), '^.*(MariaDB).*$', '\\\\1'))",
    "mysql8": "left(version(), 2)",
    "sqlite": "iif(sqlite_version() > '3', 'sqlite', '')",
    "duckdb": "list_value('duckdb')[1]",
}
IN_SPARK = "element_at(split(version(), '[.]'), 1)"
SAID = {"postgres": "PostgreSQL", "mariadb": "mariadb", "mysql8": "8.", "sqlite": "sqlite", "duckdb": "duckdb"}


@pytest.fixture
def target(request: pytest.FixtureRequest, systems: Systems) -> Harness:
    """Where the rows go; another system than the source, so that Spark reads it."""
    from_duckdb = "harness" in request.fixturenames and request.getfixturevalue("harness").name == "duckdb"
    return systems("postgres" if from_duckdb else "duckdb")


def orders() -> Any:
    return declare({"id": BigInt, "customer": BigInt, "amount": BigInt, "at": TimestampTZ})


def people() -> Any:
    return declare({"customer_id": BigInt, "name": Text | None})


ORDERS = [{"id": n, "customer": n % 3, "amount": n, "at": day(1 + n)} for n in range(12)]
PEOPLE = [{"customer_id": 0, "name": "Ana"}, {"customer_id": 1, "name": None}, {"customer_id": 2, "name": "Çelik"}]


def run(source: Harness, target: Harness, table: Any, sql: str, **options: Any) -> Any:
    def query() -> str:
        return sql

    decorate = ematix.pipeline(
        target=table, target_connection=target.connection, source_connection=source.connection,
        **{"mode": "append", "name": f"read_{table.__tablename__}", **options},
    )  # fmt: skip
    return decorate(query).sync()


def test_joins_aggregates_and_common_tables_run_in_the_source(harness: Harness, target: Harness) -> None:
    sales, customers = orders().spec(), people().spec()
    harness.seed(sales, ORDERS)
    harness.seed(customers, PEOPLE)
    table = declare({"name": Text | None, "total": BigInt, "orders": BigInt, "said_by": Text})
    asked = harness.name if harness.name in OWN_WORDS else backend_for(harness.connection).dialect
    word = OWN_WORDS.get(asked, IN_SPARK)
    run(
        harness,
        target,
        table,
        f"""
        WITH sums AS (SELECT customer, SUM(amount) AS total, COUNT(*) AS orders FROM {harness.reference(sales)} GROUP BY customer)
        SELECT c.name, s.total AS total, s.orders AS orders, {word} AS said_by
        FROM sums s JOIN {harness.reference(customers)} c ON c.customer_id = s.customer
        ORDER BY s.total DESC -- the largest first
        ;
        """,
    )
    found = target.rows(table.spec())
    assert columns(found, ("name", "total", "orders")) == [(None, 22, 4), ("Ana", 18, 4), ("Çelik", 26, 4)]
    assert {row["said_by"] for row in found} == {SAID.get(asked, "0" if native.is_native() else "4")}


def test_a_source_that_is_wrong_says_what_and_where(harness: Harness, target: Harness) -> None:
    sales = orders().spec()
    harness.seed(sales, ORDERS)
    known = harness.reference(sales)
    table = declare({"id": BigInt})
    for sql, error, said in [
        (f"SELECT id FROM {known}_2", MissingTable, f"{sales.name}_2"),
        (f"SELECT id, amonut FROM {known}", MissingColumn, "amonut"),
        (f"SELEC id FROM {known}", SqlError, ""),
    ]:
        with pytest.raises(FlowError) as caught:
            run(harness, target, table, sql)
        assert (type(caught.value), caught.value.exit_code) == (error, 3), str(caught.value)
        assert said in caught.value.what
        assert caught.value.hint
        assert "test_sources.py:" in str(caught.value)
        if error is MissingColumn:
            assert "amount" in str(caught.value.hint)


def test_a_column_that_the_source_does_not_give_is_named_with_the_nearest(harness: Harness, target: Harness) -> None:
    sales = orders().spec()
    harness.seed(sales, ORDERS)
    table = declare({"id": BigInt, "amout": BigInt})
    with pytest.raises(MissingColumn, match="gives no column 'amout'") as caught:
        run(harness, target, table, f"SELECT * FROM {harness.reference(sales)}")
    assert "did you mean 'amount'?" in str(caught.value.hint)


def test_a_source_table_needs_no_sql_and_its_columns_can_be_renamed(harness: Harness, target: Harness) -> None:
    customers = people().spec()
    harness.seed(customers, PEOPLE)
    table = declare({"key": Annotated[BigInt, pk()], "name": Text | None})

    @ematix.pipeline(
        target=table, target_connection=target.connection, source_connection=harness.connection, mode="merge",
        source_table=harness.source_table(customers), column_map={"key": "customer_id"}, name=f"map_{table.__tablename__}",
    )  # fmt: skip
    def mapped() -> None: ...

    mapped.sync()
    assert columns(target.rows(table.spec()), ("key", "name")) == [(0, "Ana"), (1, None), (2, "Çelik")]


def test_an_incremental_read_fetches_only_what_may_be_new(
    harness: Harness, target: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    sales, table = orders().spec(), orders()
    source = backend_for(harness.connection).batch_source
    fetched = count_fetched(source, monkeypatch)
    options = {"incremental": True, "watermark_column": "at", "force_lane": "spark"}  # whose reads can be counted
    harness.seed(sales, ORDERS[:10])
    run(harness, target, table, f"SELECT * FROM {harness.reference(sales)}", **options)
    harness.seed(sales, ORDERS)
    result = run(harness, target, table, f"SELECT * FROM {harness.reference(sales)}", **options)
    # The last one known comes again, because others may share its instant. JSON has no instants, only texts.
    assert fetched == [10, 12 if harness.name == "files-jsonl" else 3]
    assert (result.rows_inserted, len(target.rows(table.spec()))) == (2, 12)


def count_fetched(source: Any, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows each read of this kind of source gives Spark."""
    fetched: list[int] = []
    read = source.read

    def counting(self: Any, plan: Any, spark: Any, open_until: ExitStack) -> Any:
        frame = read(self, plan, spark, open_until)
        fetched.append(frame.count())
        return frame

    monkeypatch.setattr(source, "read", counting)
    return fetched


@pytest.mark.systems("postgres")
def test_a_large_table_is_read_in_parts_of_one_snapshot(
    harness: Any, target: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    relation = unique("big")
    harness.execute(
        f"CREATE TABLE {relation} AS SELECT n AS id, repeat('x', 500) AS pad FROM generate_series(1, 2000) n"
    )
    monkeypatch.setattr(postgres_source, "PAGES_PER_SPLIT", 8)
    if "EMATIX_FLOW_MASTER" not in os.environ:  # a cluster cuts a read by its own cores
        monkeypatch.setenv("EMATIX_FLOW_MASTER", "local[*]")
    export = postgres_source._export_snapshot
    taken: list[str] = []

    def export_then_write(*given: Any) -> str:
        taken.append(export(*given))
        harness.execute(f"DELETE FROM {relation} WHERE id % 2 = 0")
        harness.execute(f"INSERT INTO {relation} SELECT n, 'late' FROM generate_series(2001, 2500) n")
        return taken[0]

    monkeypatch.setattr(postgres_source, "_export_snapshot", export_then_write)
    table = declare({"id": BigInt, "pad": Text})
    plan = postgres_source.PostgresSource(harness.connection).plan(f"SELECT id, pad FROM {relation}", parallelism=4)
    assert (plan.splits, plan.split_reason) == (4, f"4 block ranges of {relation}")
    run(harness, target, table, f"SELECT id, pad FROM {relation}")
    assert len(taken) == 1
    assert sorted(row["id"] for row in target.rows(table.spec())) == list(range(1, 2001))


@pytest.mark.systems("postgres", "duckdb", "delta")
def test_a_function_may_answer_in_any_documented_way(harness: Harness, target: Harness) -> None:
    customers = people().spec()
    harness.seed(customers, PEOPLE)
    sql = f"SELECT * FROM {harness.reference(customers)} WHERE customer_id = 2"

    def a_source() -> Source:
        return Source.sql(harness.connection, sql)

    def a_frame(spark: Any) -> Any:
        return spark.createDataFrame([(2, "Çelik")], "customer_id BIGINT, name STRING")

    def with_connection(conn: Any) -> str:
        assert conn.name == harness.connection.name
        return sql

    def with_both(source: Any, sink: Any) -> str:
        assert (source.name, sink.name) == (harness.connection.name, target.connection.name)
        return sql

    def with_spark_too(conn: Any, spark: Any) -> Any:
        return spark.createDataFrame([(2, "Çelik")], "customer_id BIGINT, name STRING")

    for function in (a_source, a_frame, with_connection, with_both, with_spark_too):
        table = people()
        made = ematix.pipeline(
            target=table, target_connection=target.connection, mode="append", name=f"answer_{table.__tablename__}",
            source_connection=None if function is a_source else harness.connection,
        )  # fmt: skip
        made(function).sync()
        assert columns(target.rows(table.spec()), ("customer_id", "name")) == [(2, "Çelik")], function.__name__


def test_a_function_that_did_the_work_itself_gives_its_dict(target: Harness) -> None:
    table = people()

    @ematix.pipeline(
        target=table, target_connection=target.connection, mode="append", name=f"own_{table.__tablename__}"
    )
    def own(conn: Any) -> dict[str, int]:
        conn.execute("CREATE TABLE made_by_hand (n INTEGER)")
        return {"rows": conn.execute("INSERT INTO made_by_hand VALUES (1), (2)")}

    result = own.sync()
    assert (result["rows"], result.status) == (2, "success")


@pytest.mark.systems("postgres")
def test_the_size_of_a_small_table_without_statistics_is_not_guessed(harness: Harness) -> None:
    """gaps L18"""
    table = declare({"id": BigInt})
    harness.seed(table.spec(), [{"id": 1}, {"id": 2}])
    backend = backend_for(harness.connection)
    assert backend.batch_source is not None
    plan = backend.batch_source(harness.connection).plan(f"SELECT id FROM {table.spec().qualified}", parallelism=2)
    assert plan.estimated_rows == 2
