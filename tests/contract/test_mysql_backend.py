"""What only MySQL and MariaDB make hard: their collations, implicit commits, loose types, TLS and ways to load."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Annotated, Any

import pytest

from ematix_flow import BigInt, Boolean, Date, Integer, MySQLConnection, Numeric, String, Text, TimestampTZ, pk
from ematix_flow.backends.mysql import backend, key_ranges
from ematix_flow.backends.mysql.sink import MySqlSink
from ematix_flow.contract.ddl import CreateTable
from ematix_flow.contract.shape import shape_of
from ematix_flow.contract.write import WriteJob
from ematix_flow.declare.strategy import Append, Merge
from ematix_flow.engine.session.spark_errors import translate
from ematix_flow.foundation.clock import now
from ematix_flow.foundation.errors import BadValue, ConnectionFailed, DuplicateKeys, SqlError, Unsupported
from ematix_flow.planning.drift import plan_ddl
from tests.contract.conftest import Systems
from tests.contract.loading import columns, counts, day, declare, frame, load, pipeline_of, unique
from tests.contract.odd_values import differences, held_by, rows_of
from tests.contract.test_types import expected, table_of
from tests.harness.base import Row
from tests.harness.mysql import MySqlHarness


@pytest.fixture(params=["mariadb", pytest.param("mysql8", marks=pytest.mark.full("MariaDB's twin"))])
def server(request: pytest.FixtureRequest, systems: Systems) -> MySqlHarness:
    """Each of the two servers in turn."""
    found = systems(request.param)
    assert isinstance(found, MySqlHarness)
    return found


@pytest.fixture
def without_files(server: MySqlHarness) -> Iterator[MySqlHarness]:
    """A server that takes no files from its clients."""
    server.execute("SET GLOBAL local_infile = 0")
    yield server
    server.execute("SET GLOBAL local_infile = 1")


def read(server: MySqlHarness, spark: Any, query: str, connection: MySQLConnection | None = None) -> list[Row]:
    """The rows of a query through the backend."""
    source = backend.batch_source(connection or server.connection)  # type: ignore[misc]
    with ExitStack() as open_until:
        found = source.read(source.plan(query, parallelism=2), spark, open_until)
        try:
            return [row.asDict() for row in found.collect()]
        except Exception as exc:
            raise translate(exc) from exc


def database(server: MySqlHarness) -> str:
    """The database of the harness."""
    name: str = server.connection.resolved().address.database
    return name


def job_for(table: Any, strategy: Any) -> WriteJob:
    spec = table.spec()
    return WriteJob(str(uuid.uuid4()), spec.name, spec.name, shape_of(spec, strategy), strategy, now())


def test_values_arrive_as_they_are_where_files_are_not_taken(without_files: MySqlHarness) -> None:
    table, rows = table_of(), rows_of(held_by(without_files.name))
    load(without_files, table, rows, mode="append")
    assert differences(expected(table, rows), without_files.rows(table.spec())) == []


def test_a_value_that_does_not_fit_ends_the_load_either_way(server: MySqlHarness, spark: Any) -> None:
    table = declare({"id": BigInt, "born": Date | None})
    for files in (1, 0):
        server.execute(f"SET GLOBAL local_infile = {files}")
        try:
            job, sink = job_for(table, Append()), MySqlSink(server.connection)
            sink.begin(job)
            born = spark.sql("SELECT 1L AS id, date_add(DATE'9999-12-31', 1) AS born").coalesce(1)
            with pytest.raises(Exception, match="born") as caught:
                sink.stage(job, born)
            assert isinstance(translate(caught.value), BadValue)
        finally:
            server.execute("SET GLOBAL local_infile = 1")


def test_rows_of_an_attempt_that_lost_its_race_are_not_loaded(server: MySqlHarness, spark: Any) -> None:
    class Raced(MySqlSink):
        def _create_stage(self, session: Any, job: WriteJob, relation: str) -> None:
            super()._create_stage(session, job, relation)
            session.execute(f"INSERT INTO {relation} (id, _flow_attempt) VALUES (99, -1)")

    table = declare({"id": Annotated[BigInt, pk()], "name": Text | None})
    job, sink = job_for(table, Append()), Raced(server.connection)
    opening = sink.begin(job)
    backend.ddl(server.connection).apply(job.shape, [CreateTable(job.shape.table)])  # type: ignore[misc]
    stage = sink.stage(job, frame(spark, table.spec(), [{"id": 1, "name": "a"}]))
    result = sink.publish(job, stage, opening)
    sink.settle(job, opening, result, None)
    assert (stage.rows, result.counts.inserted) == (1, 1)
    assert columns(server.rows(table.spec()), ("id",)) == [(1,)]


def test_keys_differ_by_case_accent_and_trailing_blank(server: MySqlHarness) -> None:
    table = declare({"code": Annotated[String[20], pk()], "name": Text, "n": Integer})
    codes = ["a", "A", "a ", "á", "ß", "ss"]
    rows = [{"code": code, "name": code, "n": 1} for code in codes]
    assert counts(load(server, table, rows, mode="merge")) == {"inserted": 6}
    assert counts(load(server, table, rows, mode="merge")) == {"unchanged": 6}
    again = [{"code": code, "name": f"{code} ", "n": 1} for code in codes]
    assert counts(load(server, table, again[:2], mode="merge")) == {"updated": 2}
    assert sorted(row["code"] for row in server.rows(table.spec())) == sorted(codes)


@pytest.mark.parametrize("charset", ["utf8mb4 COLLATE utf8mb4_general_ci", "latin1"])
def test_a_table_made_by_hand_with_a_loose_collation_is_merged_exactly(server: MySqlHarness, charset: str) -> None:
    table = declare({"code": Annotated[String[20], pk()], "name": String[20] | None})
    spec = table.spec()
    server.create_schema(spec.schema)
    server.execute(
        f"CREATE TABLE {spec.qualified} (code varchar(20) PRIMARY KEY, name varchar(20) NULL, _loaded_at datetime(6) NOT NULL, "
        f"_batch_id char(36) NOT NULL) DEFAULT CHARACTER SET {charset}"
    )
    rows = [{"code": "grün", "name": "ü"}, {"code": "b", "name": "B"}]
    assert counts(load(server, table, rows, mode="merge")) == {"inserted": 2}
    assert counts(load(server, table, rows, mode="merge")) == {"unchanged": 2}
    assert counts(load(server, table, [{"code": "b", "name": "b"}], mode="merge")) == {"updated": 1}
    with pytest.raises(DuplicateKeys):
        load(server, table, [{"code": "B", "name": "x"}], mode="merge")
    assert columns(server.rows(spec), ("code", "name")) == [("b", "b"), ("grün", "ü")]


def test_a_dry_run_is_rolled_back_although_it_needs_temporary_tables(server: MySqlHarness) -> None:
    history = declare({"id": Annotated[BigInt, pk()], "value": Text, "at": TimestampTZ})
    events = {"mode": "scd2", "event_timestamp_column": "at"}
    load(server, history, [{"id": 1, "value": "a", "at": day(1)}], **events)
    plain = declare({"id": BigInt, "at": TimestampTZ})
    marks = {"mode": "append", "incremental": True, "watermark_column": "at"}
    load(server, plain, [{"id": 1, "at": day(1)}], **marks)
    for table, row, options, remembered in (
        (history, {"id": 1, "value": "b", "at": day(2)}, events, f"{history.__tablename__}__observations"),
        (plain, {"id": 2, "at": day(1)}, marks, plain.__tablename__),
    ):
        before = server.raw_rows(table.__schema__, table.__tablename__)
        known = server.raw_rows(table.__schema__, remembered)
        assert pipeline_of(server, table, [row], **options).dry_run().status == "dry_run"
        assert server.raw_rows(table.__schema__, table.__tablename__) == before
        assert server.raw_rows(table.__schema__, remembered) == known
        assert load(server, table, [row], **options).targets[0].rows_inserted == 1


def test_a_table_without_transactions_is_refused(server: MySqlHarness, spark: Any) -> None:
    table = declare({"id": Annotated[BigInt, pk()]})
    load(server, table, [{"id": 1}], mode="append")
    server.execute(f"ALTER TABLE {table.spec().qualified} ENGINE=MyISAM")
    with pytest.raises(Unsupported, match="MyISAM"):
        load(server, table, [{"id": 2}], mode="append")
    assert columns(server.rows(table.spec()), ("id",)) == [(1,)]


def test_inspect_finds_every_declared_type_again(server: MySqlHarness) -> None:
    ddl = backend.ddl(server.connection)  # type: ignore[misc]
    wide = declare({"id": Annotated[Text, pk()], "long": String[20000] | None})
    for table in (table_of(), wide):
        shape = shape_of(table.spec(), Merge(("id",), (), ()))
        ddl.apply(shape, [CreateTable(shape.table)])
        plan = plan_ddl(shape, ddl.inspect(shape), ddl.stored_type)
        assert (plan.steps, plan.drift) == ((), ())


def test_native_types_that_hold_the_declared_one_are_no_drift_and_others_are(server: MySqlHarness) -> None:
    ddl = backend.ddl(server.connection)  # type: ignore[misc]
    table = declare(
        {"id": Annotated[BigInt, pk()], "at": TimestampTZ, "seen": TimestampTZ | None, "flag": Boolean | None}
    )
    shape = shape_of(table.spec(), Append())
    ddl.apply(shape, [CreateTable(shape.table)])
    relation = table.spec().qualified
    server.execute(
        f"ALTER TABLE {relation} MODIFY at timestamp(6) NOT NULL, MODIFY seen datetime NULL, MODIFY flag tinyint NULL"
    )
    plan = plan_ddl(shape, ddl.inspect(shape), ddl.stored_type)
    assert [item.text for item in plan.drift] == [
        "~ seen is datetime, declared is TimestampTZ",
        "~ flag is tinyint(4), declared is Boolean",
    ]
    ddl.apply(shape, [item.repair for item in plan.drift if item.repair])
    mended = plan_ddl(shape, ddl.inspect(shape), ddl.stored_type)
    assert (mended.steps, mended.drift) == ((), ())


def test_types_without_a_word_of_their_own_leave_exactly_or_not_at_all(server: MySqlHarness, spark: Any) -> None:
    name = f"{database(server)}.{unique('odd')}"
    server.execute(
        f"CREATE TABLE {name} (u bigint unsigned, b bit(9), one bit(1), t time(3), y year, e enum('x','y'), "
        "g point, at timestamp(6) NULL, c char(4))"
    )
    server.execute(
        f"INSERT INTO {name} VALUES (18446744073709551615, b'100000001', b'1', '-12:34:56.789', 2026, 'y', "
        "POINT(1, 2), '2026-03-29 02:30:00.123456', 'ab')"
    )
    found = read(server, spark, f"SELECT u, b, one, t, y, e, g, at, c, SUM(u) OVER () AS total FROM {name}")[0]
    assert found["at"].timestamp() == 1774751400.123456
    del found["at"]
    assert found == {
        "u": Decimal(18446744073709551615), "b": 257, "one": True, "t": "-12:34:56.789", "y": 2026, "e": "y",
        "g": "POINT(1 2)", "c": "ab", "total": Decimal(18446744073709551615),
    }  # fmt: skip


def test_a_value_that_spark_cannot_carry_ends_the_read(server: MySqlHarness, spark: Any) -> None:
    name = f"{database(server)}.{unique('bad')}"
    server.execute(f"CREATE TABLE {name} (born date, flag tinyint(1))")
    server.execute("SET SESSION sql_mode = ''")
    server.execute(f"INSERT INTO {name} VALUES ('0000-00-00', 5)")
    server.execute("SET SESSION sql_mode = DEFAULT")
    for query, said in (
        (f"SELECT born FROM {name}", "0000-00-00"),
        (f"SELECT flag FROM {name}", "neither 0 nor 1"),
        ("SELECT CAST(REPEAT('9', 40) AS DECIMAL(40, 0)) AS total", "total"),
    ):
        with pytest.raises(BadValue, match=said):
            read(server, spark, query)
    assert read(server, spark, f"SELECT NULLIF(born, 0) AS born, CAST(flag AS SIGNED) AS flag FROM {name}") == [
        {"born": None, "flag": 5}
    ]


def test_a_table_with_uneven_keys_is_cut_and_nothing_is_lost_or_doubled(
    server: MySqlHarness, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_ranges, "SMALLEST_PART_ROWS", 500)
    monkeypatch.setattr(key_ranges, "LARGEST_PART_ROWS", 1500)
    name = f"{database(server)}.{unique('cut')}"
    server.execute(f"CREATE TABLE {name} (id bigint, n int, PRIMARY KEY (id, n))")
    server.fill(
        f"INSERT INTO {name} VALUES (%s, %s)", [(key, 0) for key in [-5, *range(4000), *range(10**15, 10**15 + 4000)]]
    )
    server.execute(f"ANALYZE TABLE {name}")
    source = backend.batch_source(server.connection)  # type: ignore[misc]
    plan = source.plan(f"SELECT q.id FROM {name} AS q WHERE q.n = 0", parallelism=2)
    assert (plan.splits > 4, plan.consistent) == (True, False)
    with ExitStack() as open_until:
        found = source.read(plan, spark, open_until)
        seen = found.selectExpr("count(*)", "count(distinct id)", "sum(id)", "min(id)").collect()[0]
    assert tuple(seen) == (8001, 8001, -5 + sum(range(4000)) + sum(range(10**15, 10**15 + 4000)), -5)


@pytest.mark.parametrize("server", ["mysql8"], indirect=True)
def test_a_login_that_must_use_tls_reads_and_writes_every_value(server: MySqlHarness, spark: Any) -> None:
    user = unique("tls")
    server.execute(f"CREATE USER '{user}'@'%' IDENTIFIED BY 'a@b/c%d ü' REQUIRE SSL")
    server.execute(f"GRANT ALL ON *.* TO '{user}'@'%'")
    where = server.connection.resolved().address
    login = {"host": where.host, "port": where.port, "database": where.database, "user": user, "password": "a@b/c%d ü"}
    connection = MySQLConnection(name="tls", **login)
    with backend.client(connection) as session:  # type: ignore[misc, attr-defined]
        assert session.query("SHOW SESSION STATUS LIKE 'Ssl_cipher'")[1][0][1]
    values = {
        name: [item for item in held if not isinstance(item, bytes)] for name, held in held_by(server.name).items()
    }
    table, rows = table_of(), rows_of(values)
    server.seed(table.spec(), rows)
    found = read(server, spark, f"SELECT * FROM {table.spec().qualified}", connection)
    plain = read(server, spark, f"SELECT * FROM {table.spec().qualified}")
    assert sorted(map(str, found)) == sorted(map(str, plain))
    assert len(found) == len(rows)
    server.execute(f"DROP USER '{user}'@'%'")
    with pytest.raises(ConnectionFailed) as caught:
        backend.client(connection)  # type: ignore[misc]
    assert "a@b" not in str(caught.value)


def test_a_syntax_error_is_reported_for_the_query_as_it_was_written(server: MySqlHarness) -> None:
    source = backend.batch_source(server.connection)  # type: ignore[misc]
    with pytest.raises(SqlError, match="near 'FORM t'"):
        source.plan("SELECT 1 AS a FORM t", parallelism=1)


def test_a_session_shows_the_first_rows_without_fetching_all(server: MySqlHarness) -> None:
    with backend.client(replace(server.connection)) as session:  # type: ignore[misc, attr-defined]
        names, rows = session.query("SELECT 1 AS n UNION ALL SELECT 2 UNION ALL SELECT 3", limit=2)
        assert (names, rows) == (["n"], [(1,), (2,)])
        assert len(session.query("SELECT 1 AS n UNION ALL SELECT 2")[1]) == 2
        assert session.execute_all(["SET @n = 1", "SET @n = 2"]) == 0
        assert session.query("SELECT @@time_zone, DATE'2026-01-31'")[1] == [("+00:00", date(2026, 1, 31))]


def test_money_and_counts_of_an_aggregate_arrive_as_numbers(server: MySqlHarness, spark: Any) -> None:
    table = declare({"id": BigInt, "price": Numeric[12, 2] | None})
    load(server, table, [{"id": n, "price": Decimal(n) / 4} for n in range(4)], mode="append")
    query = (
        f"SELECT COUNT(*) AS n, SUM(id) AS ids, SUM(price) AS money, AVG(price) AS mean FROM {table.spec().qualified}"
    )
    assert read(server, spark, query) == [
        {"n": 4, "ids": Decimal(6), "money": Decimal("1.50"), "mean": Decimal("0.375000")}
    ]
