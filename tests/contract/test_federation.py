"""One statement over several connections: each table is read by its own system, and Spark joins them."""

from __future__ import annotations

import re
from contextlib import ExitStack
from datetime import date
from typing import Annotated, Any

import pytest

from ematix_flow import BigInt, Date, Text, TimestampTZ, ematix, pk, register_connection
from ematix_flow.backends.catalog import backend_for
from ematix_flow.declare.connections import clear_registry
from ematix_flow.foundation.errors import FlowError, MissingColumn, MissingTable, PlanError, SqlError, UnknownConnection
from tests.contract import native
from tests.contract.conftest import Systems
from tests.contract.loading import columns, counts, day, declare, unique
from tests.harness.base import Harness

ORDERS = [
    {"id": n, "customer": n % 4, "status": status, "day": date(2026, 1, 1 + n), "at": day(1 + n), "pad": "x" * 100}
    for n, status in enumerate(["paid", "open", "PAID", None, "paid", "open", "paid", "void"])
]
CUSTOMERS = [{"id": 0, "name": "Ana", "region": 1}, {"id": 1, "name": None, "region": 2}, {"id": 2, "name": "Çelik", "region": None}]  # fmt: skip


def orders(name: str | None = None) -> Any:
    return declare(
        {"id": BigInt, "customer": BigInt, "status": Text | None, "day": Date, "at": TimestampTZ, "pad": Text},
        name=name,
    )


def customers() -> Any:
    return declare({"id": BigInt, "name": Text | None, "region": BigInt | None})


def codes() -> Any:
    return declare({"id": BigInt, "label": Text})


def seeded(harness: Harness, table: Any, rows: list[dict[str, Any]]) -> str:
    """The table's name in a statement over several connections."""
    harness.seed(table.spec(), rows)
    return f"{harness.connection.name}.{harness.reference(table.spec())}"


def pipeline(target: Harness, table: Any, sql: str, sources: Any, **options: Any) -> Any:
    decorate = ematix.pipeline(
        target=table, target_connection=target.connection, source_connection=sources,
        **{"mode": "truncate", "name": f"joined_{table.__tablename__}", **options},
    )  # fmt: skip
    return decorate(lambda: sql)


@pytest.fixture
def shop(systems: Systems) -> tuple[str, str, list[Any]]:
    """Orders in PostgreSQL, customers in a Delta table, and the two connections."""
    postgres, delta = systems("postgres"), systems("delta")
    return seeded(postgres, orders(), ORDERS), seeded(delta, customers(), CUSTOMERS), [postgres.connection, delta.connection]  # fmt: skip


@pytest.mark.full
@pytest.mark.systems("delta")
def test_databases_files_and_lakes_are_joined_into_one_table(harness: Harness, systems: Systems) -> None:
    labels = [{"id": n, "label": f"label {n}"} for n in range(9)]
    files = "files-parquet" if native.is_native() else "files-csv"
    places = {name: systems(name) for name in ("postgres", "mariadb", "sqlite", "delta", files, "duckdb")}
    sales = seeded(places.pop("postgres"), orders(), ORDERS)
    joins = {name: seeded(place, codes(), labels) for name, place in places.items()}
    aliases = [name.replace("-", "_") for name in joins]
    table = declare({"id": Annotated[BigInt, pk()], **dict.fromkeys(aliases, Text)})
    chosen = ", ".join(f"{alias}.label AS {alias}" for alias in aliases)
    joined = " ".join(f"JOIN {name} {alias} ON {alias}.id = o.id" for alias, name in zip(aliases, joins.values(), strict=True))  # fmt: skip
    sources = [systems("postgres").connection, *(place.connection for place in places.values())]
    result = pipeline(harness, table, f"SELECT o.id, {chosen} FROM {sales} o {joined} WHERE o.id < 3;", sources).sync()
    assert (counts(result), result.targets[0].path) == ({"inserted": 3}, "cross_db")
    found = columns(harness.rows(table.spec()), ("id", *aliases))
    assert found == [(n, *(f"label {n}" for _ in aliases)) for n in range(3)]


def answers(target: Harness, sql: str, sources: Any) -> list[tuple[Any, ...]]:
    """The statement's rows (id, name), loaded and read back."""
    table = declare({"id": BigInt | None, "name": Text | None})
    pipeline(target, table, sql, sources).sync()
    return columns(target.rows(table.spec()), ("id", "name"))


def recorded(connection: Any, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The query of every read of this kind of source, and how many rows it gives Spark."""
    source: Any = backend_for(connection).batch_source
    reads: list[tuple[str, int]] = []
    read = source.read

    def recording(self: Any, plan: Any, spark: Any, open_until: ExitStack) -> Any:
        frame = read(self, plan, spark, open_until)
        reads.append((plan.query, frame.count()))
        return frame

    monkeypatch.setattr(source, "read", recording)
    return reads


@pytest.mark.systems("postgres", "mysql8", "sqlite", "duckdb")
def test_a_database_gives_only_the_rows_and_columns_that_are_asked_for(
    harness: Harness, systems: Systems, monkeypatch: pytest.MonkeyPatch
) -> None:
    people = seeded(systems("delta"), customers(), CUSTOMERS)
    sales = seeded(harness, orders(), ORDERS)
    reads = recorded(harness.connection, monkeypatch)
    sql = f"""
        SELECT o.id, c.name FROM {sales} o JOIN {people} c ON c.id = o.customer
        WHERE o.id BETWEEN 1 AND 6 AND o.status IN ('paid', 'void') AND (o.day >= DATE '2026-01-02' AND 7 > o.id)
        AND o.at < TIMESTAMP '2026-01-07 12:00:00' AND upper(o.status) = 'PAID' AND c.name IS NOT NULL
    """  # fmt: skip
    target = systems("sqlite" if harness.name == "duckdb" else "duckdb")
    assert answers(target, sql, [harness.connection, systems("delta").connection]) == [(4, "Ana"), (6, "Çelik")]
    ((query, rows),) = reads
    assert "pad" not in query
    # SQLite keeps dates as texts of any form, so it is asked for the numbers only; MySQL takes PAID for paid.
    assert rows == {"sqlite": 6, "mysql8": 3}.get(harness.name, 2)


@pytest.mark.full
def test_conditions_are_left_to_a_database_only_where_no_row_can_get_lost(systems: Systems, shop: Any) -> None:
    sales, people, sources = shop
    cases: dict[str, tuple[str, list[int]]] = {
        # The condition on NULL must not reach the table before the join does.
        "without a paid order": (
            f"SELECT c.id FROM {people} c LEFT JOIN {sales} o ON o.customer = c.id AND o.status = 'paid' WHERE o.id IS NULL",
            [1],
        ),
        "of the outer side": (
            f"SELECT o.id FROM {people} c RIGHT JOIN {sales} o ON o.customer = c.id WHERE o.status > 'b' AND o.id > 5",
            [6, 7],
        ),
        "in a subquery": (
            f"SELECT c.id FROM {people} c WHERE NOT EXISTS (SELECT 1 FROM {sales} WHERE customer = c.id AND status = 'open')",
            [0, 2],
        ),
        "all columns": (f"SELECT id FROM (SELECT * FROM {sales} WHERE id < 2) JOIN {people} USING (id)", [0, 1]),
        "no column": (f"SELECT count(*) FROM {sales} o CROSS JOIN {people} c", [24]),
    }
    sql = "\nUNION ALL\n".join(f"SELECT id, '{name}' AS name FROM ({sql}) AS q(id)" for name, (sql, _) in cases.items())
    expected = [(number, name) for name, (_, numbers) in cases.items() for number in numbers]
    assert sorted(answers(systems("duckdb"), sql, sources)) == sorted(expected)


def test_quoted_names_and_a_common_table_that_is_called_like_a_connection(systems: Systems) -> None:
    postgres, mariadb, target = systems("postgres"), systems("mariadb"), systems("duckdb")
    spaced = orders(name=unique("Order Items"))
    postgres.seed(spaced.spec(), ORDERS)
    people = seeded(mariadb, customers(), CUSTOMERS)
    here, there = postgres.connection.name, mariadb.connection.name
    quoted = f"`{here}`.{spaced.spec().schema}.`{spaced.spec().name}`"
    sql = f"""
        WITH {there} AS (SELECT * FROM {people} WHERE id = 2), {here} AS (SELECT id AS n, customer FROM {quoted})
        SELECT {here}.n AS id, {there}.name FROM {here} JOIN {there} ON {there}.id = {here}.customer
    """
    assert answers(target, sql, [postgres.connection, mariadb.connection]) == [(2, "Çelik"), (6, "Çelik")]
    full = f"SELECT {quoted}.id, {people}.name FROM {quoted} JOIN {people} ON {people}.id = {quoted}.customer WHERE {quoted}.id = 6"
    assert answers(target, full, [postgres.connection, mariadb.connection]) == [(6, "Çelik")]


def test_connections_need_not_be_listed_where_they_are_known_by_name(systems: Systems, shop: Any) -> None:
    sales, people, sources = shop
    target = systems("duckdb")
    for connection in sources:
        register_connection(connection)
    try:
        sql = f"SELECT o.id, c.name FROM {sales} o JOIN {people} c ON c.id = o.customer WHERE o.id = 6"
        assert answers(target, sql, None) == [(6, "Çelik")]
        for wrong, error, said in [
            (sql.replace("contract_postgres", "contract_postgre"), MissingTable, "contract_postgres"),
            (sql.replace("contract_postgres.", ""), MissingTable, "contract_postgres"),
            ("SELECT id, '' AS name FROM contract_postgre.a.b", PlanError, "contract_postgres"),
        ]:
            with pytest.raises(error) as caught:
                answers(target, wrong, None)
            assert caught.value.exit_code == 3
            assert said in str(caught.value.hint), str(caught.value)
            assert "test_federation.py:" in str(caught.value)
    finally:
        clear_registry()


def test_a_statement_of_one_connection_runs_inside_it(systems: Systems, shop: Any) -> None:
    sales, _, sources = shop
    target, table = systems("postgres"), declare({"id": BigInt, "name": Text})
    sql = f"SELECT {sales}.id, split_part(version(), ' ', 1)::text AS name FROM {sales} WHERE {sales}.id = 1"
    made = pipeline(target, table, sql, sources)
    assert made.preview().source_kind == "postgres"
    assert made.sync().targets[0].path == "same_db"
    assert columns(target.rows(table.spec()), ("id", "name")) == [(1, "PostgreSQL")]


def test_what_is_wrong_with_a_statement_is_reported_before_anything_is_read(systems: Systems, shop: Any) -> None:
    sales, people, sources = shop
    target = systems("duckdb")
    join = f"FROM {sales} o JOIN {people} c ON c.id = o.customer"
    wrong: list[tuple[str, type[FlowError], str, str]] = [
        (f"SELECT o.id, c.name {join} JOIN elsewhere.raw.x ON true", MissingTable, "elsewhere.raw.x", "contract_delta"),
        (f"SELECT o.id, c.name {join} JOIN contract_delt.raw.x ON true", MissingTable, "contract_delt", "did you mean 'contract_delta'?"),
        (f"SELECT o.id, c.name {join} JOIN x ON true", MissingTable, "x names no connection", "connection.schema.table"),
        (f"SELECT o.id, c.name {join.replace(' o ', '_2 o ')}", MissingTable, "_2", ""),
        (f"SELECT o.id, c.name {join.replace(' c ', '_2 c ')}", MissingTable, "_2", "did you mean"),
        (f"SELECT o.id, o.statu AS name {join}", MissingColumn, "statu", "did you mean 'status'?"),
        (f"SELEC o.id, c.name {join}", SqlError, "", ""),
        (f"SELECT o.id, c.id {join}", PlanError, "more than one column called id", "AS"),
        (f"SELECT o.id, c.name {join} WHERE o.pad ~* 'x'", SqlError, "", ""),
    ]  # fmt: skip
    for sql, error, said, hint in wrong:
        with pytest.raises(FlowError) as caught:
            answers(target, sql, sources)
        assert (type(caught.value), caught.value.exit_code) == (error, 3), f"{sql}: {caught.value!r}"
        assert said in caught.value.what
        assert caught.value.hint
        assert hint in caught.value.hint, str(caught.value)
        assert "test_federation.py:" in str(caught.value)
    with pytest.raises(UnknownConnection) as unknown:
        answers(target, f"SELECT o.id, c.name {join}", [*sources, "contract_nobody"])
    assert unknown.value.exit_code == 5


def test_a_preview_says_where_the_tables_are_and_reads_none(
    systems: Systems, shop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sales, people, sources = shop
    reads = recorded(sources[0], monkeypatch)
    made = pipeline(
        systems("duckdb"), customers(), f"SELECT c.* FROM {people} c JOIN {sales} o ON c.id = o.customer", sources
    )
    plan = made.preview()
    assert (plan.source_kind, plan.source_connection_name) == ("federation", "contract_delta + contract_postgres")
    assert plan.targets[0].path_reason == "the source is several systems"
    assert re.search(r"2 tables of Delta Lake, PostgreSQL", plan.to_text())
    assert [column.split()[0] for column in plan.source_columns] == ["id", "name", "region"]
    assert made.validate().ok
    assert reads == []


def test_an_incremental_load_of_a_statement_over_several_connections_loads_what_is_new(systems: Systems) -> None:
    mariadb, delta, target = systems("mariadb"), systems("delta"), systems("duckdb")
    source, people = orders(), seeded(delta, customers(), CUSTOMERS)
    table = declare({"key": Annotated[BigInt, pk()], "who": Text | None, "at": TimestampTZ})
    options = {"mode": "append", "incremental": True, "watermark_column": "at", "column_map": {"key": "id", "who": "name"}}  # fmt: skip
    for there, new in ((4, 3), (8, 3)):
        sales = seeded(mariadb, source, ORDERS[:there])
        sql = f"SELECT o.id, c.name, o.at FROM {sales} o JOIN {people} c ON c.id = o.customer"
        result = pipeline(target, table, sql, [mariadb.connection, delta.connection], **options).sync()
        assert result.rows_inserted == new
    assert columns(target.rows(table.spec()), ("key", "who")) == [
        (0, "Ana"), (1, None), (2, "Çelik"), (4, "Ana"), (5, None), (6, "Çelik"),
    ]  # fmt: skip
