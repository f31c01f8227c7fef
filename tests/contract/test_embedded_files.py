"""Database files as people have them: missing, locked, read-only, full, in memory, and holding types of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import duckdb
import pytest

from ematix_flow import JSON, BigInt, Boolean, Double, Integer, Numeric, Text, Timestamp, TimestampTZ, pk
from ematix_flow.backends import duckdb as duckdb_backend
from ematix_flow.backends import sqlite as sqlite_backend
from ematix_flow.backends.duckdb import session as duckdb_session
from ematix_flow.backends.sqlite import session as sqlite_session
from ematix_flow.contract.shape import shape_of
from ematix_flow.contract.write import Counts
from ematix_flow.dataplane.parquet_stage import ROOT_VARIABLE
from ematix_flow.declare.strategy import Append, Merge
from ematix_flow.foundation.errors import (
    BadValue,
    ConnectionFailed,
    MissingColumn,
    MissingTable,
    PermissionDenied,
    PlanError,
    SqlError,
    StorageFull,
    Unreachable,
)
from tests.contract.embedded import System, job_of, people, perform, person, read
from tests.contract.loading import declare


@pytest.fixture(autouse=True)
def stages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stages of a test stay in the test's own folder."""
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path / "stages"))
    return tmp_path / "stages" / "ematix-flow-stage"


@pytest.fixture(params=[sqlite_backend.backend, duckdb_backend.backend], ids=["sqlite", "duckdb"])
def system(request: pytest.FixtureRequest, tmp_path: Path) -> System:
    return System(request.param, tmp_path / "new folder" / "data.db")


@pytest.fixture
def sqlite(tmp_path: Path) -> System:
    return System(sqlite_backend.backend, tmp_path / "source.db")


@pytest.fixture
def duck(tmp_path: Path) -> System:
    return System(duckdb_backend.backend, tmp_path / "source.duckdb")


def test_a_database_that_is_not_there_is_an_error_for_a_source_only(system: System, spark: Any) -> None:
    with pytest.raises(ConnectionFailed, match=r"(?s)there is no .* database at .*data\.db.*check path="):
        system.source().plan("SELECT 1 AS x", parallelism=1)
    assert not system.path.exists()
    perform(system, spark, people(), Append(), [person(1, "a")])
    assert system.path.exists()


def test_a_database_in_memory_is_one_for_every_session(system: System) -> None:
    connection = type(system.connection)(name="volatile", path=":memory:")
    assert system.backend.client is not None
    client = system.backend.client(connection)
    assert client.execute_all(["CREATE TABLE t (i INTEGER)", "INSERT INTO t VALUES (1), (2)"]) == 2
    client.close()
    again = system.backend.client(connection)
    assert again.query("SELECT i FROM t ORDER BY i", limit=1) == (["i"], [(1,)])
    again.close()


def test_errors_say_what_is_wrong(system: System, spark: Any) -> None:
    system.path.parent.mkdir(parents=True)
    system.ask("CREATE TABLE here (id INTEGER, name VARCHAR)")
    source = system.source()
    for query, error in (
        ("SELECT * FROM nowhere", MissingTable), ("SELECT nme FROM here", MissingColumn), ("SELEC 1", SqlError),
        ("SELECT no_such(id) FROM here", SqlError), ("SELECT id, id FROM here", PlanError),
    ):  # fmt: skip
        with pytest.raises(error) as caught:
            source.plan(query, parallelism=1)
        assert caught.value.hint
    system.path.write_bytes(b"this is not a database, it is only text. " * 200)
    with pytest.raises(ConnectionFailed, match="path="):
        source.plan("SELECT 1 AS x", parallelism=1)


@pytest.fixture
def lock(system: System) -> Iterator[Callable[[], None]]:
    """Another process that writes the database and does not let go."""
    held: list[subprocess.Popen[bytes]] = []
    hold = {
        "sqlite": "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None); c.execute('BEGIN EXCLUSIVE')",
        "duckdb": "import duckdb, sys; c = duckdb.connect(sys.argv[1])",
    }[system.backend.name]

    def take() -> None:
        code = f"{hold}; print('held', flush=True); sys.stdin.read()"
        process = subprocess.Popen(
            [sys.executable, "-c", code, str(system.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        held.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"

    yield take
    for process in held:
        process.kill()
        process.wait()


def test_a_locked_database_is_unreachable_and_may_be_tried_again(
    system: System, spark: Any, lock: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = people()
    perform(system, spark, table, Append(), [person(1, "a")])
    monkeypatch.setattr(sqlite_session, "BUSY_SECONDS", 0.3)
    monkeypatch.setattr(duckdb_session, "LOCK_SECONDS", 0.3)
    lock()
    for work in (
        lambda: system.source().plan(f"SELECT * FROM {system.name(table.spec())}", parallelism=1),
        lambda: system.sink().begin(job_of(shape_of(table.spec(), Append()), Append())),
    ):
        with pytest.raises(Unreachable, match=r"(?s)lock.*run again") as caught:
            work()
        assert caught.value.retryable


def test_a_database_that_may_only_be_read_or_is_full_says_so(system: System) -> None:
    system.path.parent.mkdir(parents=True)
    system.ask("CREATE TABLE t (i INTEGER)")
    reading = {"sqlite": sqlite_session, "duckdb": duckdb_session}[system.backend.name].connect_source(
        system.connection
    )
    with reading, pytest.raises(PermissionDenied, match=r"(?s)read.?only.*allow this user"):
        reading.execute("INSERT INTO t VALUES (1)")
    if system.backend.name == "sqlite":
        with sqlite_session.connect(system.connection) as full:
            full.execute("PRAGMA max_page_count = 4")
            with pytest.raises(StorageFull, match="free space"):
                full.execute(
                    "INSERT INTO t WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r LIMIT 9999) SELECT i FROM r"
                )


def test_a_duckdb_file_may_be_named_like_its_schema(tmp_path: Path, spark: Any) -> None:
    system = System(duckdb_backend.backend, tmp_path / "analytics.v1.duckdb")
    table = declare({"id": Annotated[BigInt, pk()], "name": Text}, schema="analytics", name="events")
    strategy = Merge(("id",), ("name",), ("name",))
    perform(system, spark, table, strategy, [{"id": 1, "name": "a"}])
    assert perform(system, spark, table, strategy, [{"id": 1, "name": "b"}]).counts == Counts(read=1, updated=1)
    own = System(duckdb_backend.backend, tmp_path / "ematix_flow.duckdb")
    perform(own, spark, table, Append(), [{"id": 1, "name": "a"}])
    assert own.ask("SELECT COUNT(*) FROM ematix_flow.ematix_flow.run_history") == [(1,)]


def test_sqlite_columns_are_typed_by_what_they_hold(sqlite: System, spark: Any) -> None:
    sqlite.ask(
        "CREATE TABLE t (n INT, late REAL, x, price DECIMAL(10,2), at DATETIME, zoned TIMESTAMPTZ, wrong DATE, wide INT, ok BOOL, j JSON)"
    )
    sqlite.ask(
        "WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r WHERE i < 20000) INSERT INTO t SELECT i, "
        "CASE WHEN i = 20000 THEN 0.5 END, CASE WHEN i % 2 THEN i ELSE 'text' END, CASE WHEN i > 19000 THEN i / 4.0 END, "
        "CASE i WHEN 1 THEN '2026-01-01T10:00Z' WHEN 2 THEN '2026-01-01' WHEN 20000 THEN '2026-01-01 10:00:00.25' END, "
        "CASE i WHEN 20000 THEN '2026-01-01T10:00:00.5+02:00' END, CASE i WHEN 5 THEN 'tomorrow' ELSE '2026-01-01' END, "
        "CASE i WHEN 7 THEN 9007199254740993 END, CASE i WHEN 1 THEN 'true' ELSE 0 END, CASE i WHEN 1 THEN 1.5 END FROM r"
    )
    columns = {column.name: column.type for column in sqlite.source().plan("SELECT * FROM t", parallelism=2).columns}
    assert columns == {
        "n": Integer(), "late": Double(), "x": Text(), "price": Numeric(10, 2), "at": Timestamp(), "zoned": TimestampTZ(),
        "wrong": Text(), "wide": BigInt(), "ok": Boolean(), "j": JSON(),
    }  # fmt: skip
    rows = {row["n"]: row for row in read(sqlite, spark, "SELECT * FROM t;")}
    assert len(rows) == 20000
    assert (rows[20000]["late"], rows[19999]["x"], rows[20000]["x"]) == (0.5, "19999", "text")
    assert rows[20000]["price"] == Decimal("5000.00")
    assert [rows[n]["at"] for n in (1, 2, 20000)] == [
        datetime(2026, 1, 1, 10), datetime(2026, 1, 1), datetime(2026, 1, 1, 10, 0, 0, 250000)
    ]  # fmt: skip
    assert rows[20000]["zoned"].astimezone(timezone.utc) == datetime(2026, 1, 1, 8, 0, 0, 500000, timezone.utc)
    assert (rows[5]["wrong"], rows[7]["wide"], rows[1]["ok"], rows[2]["ok"], rows[1]["j"]) == (
        "tomorrow",
        2**53 + 1,
        True,
        False,
        "1.5",
    )


def test_sqlite_expressions_empty_results_and_mixed_binary(sqlite: System, spark: Any) -> None:
    sqlite.ask("CREATE TABLE t (a INTEGER, b BLOB, c)")
    assert read(sqlite, spark, "SELECT a, b, c, a + 1 AS d FROM t") == []
    sqlite.ask("INSERT INTO t VALUES (1, x'00ff', 0.1), (NULL, 'text', 2)")
    query = "WITH w AS (SELECT * FROM t) SELECT COUNT(*) AS n, AVG(a) AS m, MAX(b) AS b, GROUP_CONCAT(c) AS c FROM w"
    assert read(sqlite, spark, query) == [{"n": 2, "m": 1.0, "b": b"\x00\xff", "c": "0.1,2"}]
    found = read(sqlite, spark, "SELECT a, b, c FROM t ORDER BY a")
    assert [(row["a"], bytes(row["b"]), row["c"]) for row in found] == [(None, b"text", 2.0), (1, b"\x00\xff", 0.1)]
    with pytest.raises(BadValue, match=r"'b' holds binary values beside others"):
        sqlite.source().plan("SELECT CASE a WHEN 1 THEN b ELSE 'x' END AS b FROM t", parallelism=1)


def test_sqlite_reads_from_a_watermark_whatever_the_spelling(sqlite: System, spark: Any) -> None:
    sqlite.ask("CREATE TABLE t (id INT, at TIMESTAMP, amount DECIMAL_TEXT(20,2))")
    sqlite.ask(
        "INSERT INTO t VALUES (1, '2026-01-01T09:59:59.999', '9.00'), (2, '2026-01-01 10:00', '10.00'), "
        "(3, '2026-01-01T12:00:00+02:00', '11'), (4, NULL, NULL), (5, '2026-01-02', '100')"
    )
    source = sqlite.source()
    columns = {column.name: column for column in source.plan("SELECT * FROM t", parallelism=1).columns}
    later = source.since("SELECT * FROM t", columns["at"], "2026-01-01 10:00:00.000000")
    assert sorted(row["id"] for row in read(sqlite, spark, later)) == [2, 3, 4, 5]
    more = source.since("SELECT * FROM t", columns["amount"], "10.00")
    assert sorted(row["id"] for row in read(sqlite, spark, more)) == [2, 3, 4, 5]


def test_duckdb_types_without_a_word_of_their_own_travel_without_loss(duck: System, spark: Any, stages: Path) -> None:
    (stages / "read-999999999-left").mkdir(parents=True)
    duck.ask(
        "CREATE TABLE t AS SELECT 255::UTINYINT AS a, 4294967295::UINTEGER AS b, 18446744073709551615::UBIGINT AS c, "
        "99999999999999999999999999999999999999::HUGEINT AS d, 'x'::ENUM('x', 'y') AS e, [1, NULL] AS f, {'k': [1.5]} AS g, "
        "MAP {'k': 1} AS h, INTERVAL 3 DAY AS i, TIME '10:00:01' AS j, TIMESTAMP_NS '2026-01-01 10:00:00.123456' AS k, "
        "TIMESTAMP_S '2026-01-01 10:00:00' AS l, '101'::BIT AS m, NULL AS n, (-128)::TINYINT AS o"
    )
    (row,) = read(duck, spark, "FROM t")
    assert (row["a"], row["b"], row["c"], row["d"]) == (255, 2**32 - 1, Decimal(2**64 - 1), Decimal("9" * 38))
    assert (row["e"], json.loads(row["f"]), json.loads(row["g"]), json.loads(row["h"])) == (
        "x",
        [1, None],
        {"k": [1.5]},
        {"k": 1},
    )
    assert (row["i"], row["j"], row["k"], row["l"]) == (
        "3 days", "10:00:01", datetime(2026, 1, 1, 10, 0, 0, 123456), datetime(2026, 1, 1, 10)
    )  # fmt: skip
    assert (row["m"], row["n"], row["o"]) == ("101", None, -128)
    assert read(duck, spark, "SELECT a FROM t WHERE a = 0") == []
    for lost in ("'infinity'::TIMESTAMPTZ", "DATE '10000-01-01'", "TIMESTAMP_NS '2026-01-01 10:00:00.123456789'"):
        with pytest.raises(BadValue, match="cannot leave DuckDB"):
            read(duck, spark, f"SELECT {lost} AS x")
    assert not any(stages.iterdir())


def test_duckdb_shares_a_file_that_this_process_has_open(duck: System, spark: Any) -> None:
    table = people()
    with duckdb.connect(str(duck.path)) as own:
        own.execute("CREATE TABLE mine AS SELECT 1 AS id")
        assert read(duck, spark, "SELECT id FROM mine") == [{"id": 1}]
        assert perform(duck, spark, table, Append(), [person(1, "a")]).counts.inserted == 1
        assert own.execute(f"SELECT COUNT(*) FROM {duck.name(table.spec())}").fetchall() == [(1,)]
