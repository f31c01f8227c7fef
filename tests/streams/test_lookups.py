"""Tables that streams are joined with: where they come from, when they are read again, and what happens when they cannot."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from ematix_flow import DuckDBConnection, Lookup, ObjectStoreLocalConnection, PostgresConnection, SQLiteConnection
from ematix_flow.foundation.errors import FlowError, MissingTable
from ematix_flow.streaming.runtime import lookups as module
from ematix_flow.streaming.runtime.lookups import Lookups
from tests.streams.sample_functions import WITH_TIERS
from tests.streams.sql_session import DLQ, Aside, explained, open_until, rows, spark, transform

__all__ = ["open_until", "spark"]

USERS = [(1, "gold"), (2, "Ünîcode"), (3, None)]


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Postgres:
    """dim_users in PostgreSQL."""

    def __init__(self, url: str) -> None:
        import psycopg

        self.connection = PostgresConnection("warehouse", url=url)
        self._own = psycopg.connect(url, autocommit=True)
        self.run("CREATE TABLE dim_users (user_id BIGINT, tier TEXT)")
        self.fill(USERS)

    def run(self, sql: str) -> None:
        self._own.execute(sql.encode())

    def fill(self, users: list[Any]) -> None:
        self.run("TRUNCATE dim_users")
        with self._own.cursor() as cursor:
            cursor.executemany(b"INSERT INTO dim_users VALUES (%s, %s)", users)

    def close(self) -> None:
        self.run("DROP TABLE IF EXISTS dim_users")
        self._own.close()


class DuckDB:
    """dim_users in DuckDB, whose file is free between statements."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)
        self.connection = DuckDBConnection("warehouse", path=self._path)
        self.run("CREATE TABLE dim_users (user_id BIGINT, tier TEXT)")
        self.fill(USERS)

    def run(self, sql: str, *values: Any) -> None:
        import duckdb

        with duckdb.connect(self._path) as own:
            own.execute(sql, list(values))

    def fill(self, users: list[Any]) -> None:
        self.run("DELETE FROM dim_users")
        for user in users:
            self.run("INSERT INTO dim_users VALUES (?, ?)", *user)

    def close(self) -> None:
        Path(self._path).unlink(missing_ok=True)


@pytest.fixture(params=["postgres", pytest.param("duckdb", marks=pytest.mark.full("PostgreSQL shows the same"))])
def users(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """The same table in two systems."""
    made: Any = (
        Postgres(request.getfixturevalue("fresh_postgres"))
        if request.param == "postgres"
        else DuckDB(tmp_path / "dim.duckdb")
    )
    yield made
    made.close()


def events(spark: Any, *ids: int) -> Any:
    at = datetime(2026, 1, 5, tzinfo=timezone.utc)
    return spark.createDataFrame([(n, at) for n in ids], "user_id BIGINT, _event_ts TIMESTAMP")


def tiers(made: Any, frame: Any) -> dict[int, Any]:
    with ExitStack() as open_until:
        return {row.user_id: row.tier for row in made.apply(frame, open_until).collect()}


def test_a_stream_joins_what_a_query_finds(spark: Any, users: Any) -> None:
    lookup = Lookup(
        connection=users.connection, query="SELECT user_id, tier FROM dim_users", refresh_interval_ms=60_000
    )
    made = transform(WITH_TIERS, lookups={"users": lookup})
    assert tiers(made, events(spark, 1, 2, 3, 4)) == {1: "gold", 2: "Ünîcode", 3: None, 4: None}
    made.close()


@pytest.mark.full
@pytest.mark.parametrize(
    ("schema", "table"), [("", "dim_users"), ("{schema}", "dim_users"), ("", "{schema}.dim_users")]
)
def test_a_whole_table_is_named_with_or_without_its_schema(spark: Any, users: Any, schema: str, table: str) -> None:
    own = "public" if isinstance(users, Postgres) else "main"
    lookup = Lookup(connection=users.connection, table=table.format(schema=own), schema=schema.format(schema=own))
    made = transform(WITH_TIERS, lookups={"users": lookup})
    assert tiers(made, events(spark, 1)) == {1: "gold"}
    made.close()


@pytest.mark.full
def test_a_lookup_is_read_once_and_kept_when_nothing_says_otherwise(spark: Any, users: Any) -> None:
    made = transform(WITH_TIERS, lookups={"users": Lookup(connection=users.connection, table="dim_users")})
    assert tiers(made, events(spark, 1)) == {1: "gold"}
    users.fill([(1, "silver")])
    assert tiers(made, events(spark, 1)) == {1: "gold"}
    made.close()


def test_a_lookup_is_read_again_at_the_border_of_a_batch_when_its_time_has_come(spark: Any, users: Any) -> None:
    clock = Clock()
    lookup = Lookup(connection=users.connection, table="dim_users", refresh_interval_ms=5_000)
    made = transform(WITH_TIERS, lookups={"users": lookup})
    made.lookups = Lookups({"users": lookup}, clock=clock)
    assert tiers(made, events(spark, 1)) == {1: "gold"}
    users.fill([(1, "silver"), (9, "new")])
    clock.now += 4.9
    assert tiers(made, events(spark, 1, 9)) == {1: "gold", 9: None}
    clock.now += 0.2
    assert tiers(made, events(spark, 1, 9)) == {1: "silver", 9: "new"}
    users.run("ALTER TABLE dim_users ADD COLUMN more BIGINT")
    clock.now += 6
    assert tiers(made, events(spark, 1)) == {1: "silver"}
    made.close()


@pytest.mark.full
def test_a_batch_that_is_planned_keeps_the_rows_it_was_planned_with(
    spark: Any, users: Any, open_until: ExitStack
) -> None:
    clock = Clock()
    lookup = Lookup(connection=users.connection, table="dim_users", refresh_interval_ms=1)
    made = transform(WITH_TIERS, lookups={"users": lookup})
    made.lookups = Lookups({"users": lookup}, clock=clock)
    before = made.apply(events(spark, 1), open_until)
    users.fill([(1, "silver")])
    clock.now += 1
    after = made.apply(events(spark, 1), open_until)
    assert [frame.collect()[0].tier for frame in (before, after)] == ["gold", "silver"]
    made.close()


def test_a_refresh_that_fails_keeps_the_old_rows_and_warns(
    spark: Any, users: Any, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    lookup = Lookup(connection=users.connection, table="dim_users", refresh_interval_ms=1_000)
    made = transform(WITH_TIERS, lookups={"users": lookup})
    made.lookups = Lookups({"users": lookup}, clock=clock)
    assert tiers(made, events(spark, 1)) == {1: "gold"}
    users.run("ALTER TABLE dim_users RENAME TO gone")
    clock.now += 30
    with caplog.at_level(logging.WARNING):
        assert tiers(made, events(spark, 1)) == {1: "gold"}
    assert "lookup users could not be read again, the rows of 30 s ago stay" in caplog.text
    assert made.lookups.each[0].failures == 1
    users.run("ALTER TABLE gone RENAME TO dim_users")
    users.fill([(1, "back")])
    assert tiers(made, events(spark, 1)) == {1: "gold"}  # the next try is one interval later, not at every batch
    clock.now += 1
    assert tiers(made, events(spark, 1)) == {1: "back"}
    assert made.lookups.each[0].failures == 0
    made.close()


@pytest.mark.full
def test_a_lookup_that_cannot_be_read_at_first_fails_the_stream(spark: Any, users: Any, open_until: ExitStack) -> None:
    lookup = Lookup(connection=users.connection, table="nobody", refresh_interval_ms=1_000)
    made = transform(WITH_TIERS, lookups={"users": lookup})
    with pytest.raises(FlowError, match=r"lookup 'users' cannot be read: .*nobody") as failed:
        made.apply(events(spark, 1), open_until)
    assert isinstance(failed.value, MissingTable)
    assert failed.value.facts["lookup"] == "users"


@pytest.mark.full
def test_a_lookup_without_tables_is_refused(spark: Any, open_until: ExitStack) -> None:
    from ematix_flow import SchemaRegistryConnection

    wrong = SchemaRegistryConnection("registry", url="http://127.0.0.1:1")
    with pytest.raises(FlowError, match=r"registry|tables"):
        transform(WITH_TIERS, lookups={"users": Lookup(connection=wrong, table="t")}).apply(
            events(spark, 1), open_until
        )


@pytest.mark.full
def test_files_and_sqlite_are_lookups_as_well_and_several_go_together(
    spark: Any, open_until: ExitStack, tmp_path: Path
) -> None:
    import sqlite3

    spark.createDataFrame(USERS, "user_id BIGINT, tier STRING").coalesce(1).write.parquet(
        str(tmp_path / "lake" / "users")
    )
    with sqlite3.connect(tmp_path / "names.db") as own:
        own.execute("CREATE TABLE names (user_id INTEGER, name TEXT)")
        own.execute("INSERT INTO names VALUES (1, 'Ana'), (2, 'Bo')")
    own.close()
    lake = ObjectStoreLocalConnection("lake", path=str(tmp_path / "lake"), format="parquet")
    names = SQLiteConnection("names", path=str(tmp_path / "names.db"))
    made = transform(
        "SELECT s.user_id, u.tier, n.name FROM source s LEFT JOIN users u USING (user_id) LEFT JOIN names n ON n.user_id = s.user_id",
        lookups={"users": Lookup(connection=lake, table="users"), "names": Lookup(connection=names, table="names")},
    )
    assert rows(made.apply(events(spark, 1, 3), open_until)) == [(1, "gold", "Ana"), (3, None, None)]
    made.close()


@pytest.mark.full
def test_a_few_rows_are_copied_to_every_task(
    spark: Any, users: Any, open_until: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    lookup = Lookup(connection=users.connection, table="dim_users")
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    try:
        for most, expected in ((module.SMALL_ROWS, True), (1, False)):
            monkeypatch.setattr(module, "SMALL_ROWS", most)
            made = transform(WITH_TIERS, lookups={"users": lookup})
            frame = made.apply(events(spark, 1), open_until)
            assert ("BroadcastHashJoin" in explained(frame)) is expected
            made.close()
    finally:
        spark.conf.unset("spark.sql.autoBroadcastJoinThreshold")


@pytest.mark.full
def test_bad_rows_of_a_statement_with_lookups_are_set_aside(spark: Any, users: Any, open_until: ExitStack) -> None:
    sql = "SELECT s.user_id, u.tier, 10 / (s.user_id - 2) AS x FROM source s LEFT JOIN users u ON u.user_id = s.user_id"
    made = transform(sql, lookups={"users": Lookup(connection=users.connection, table="dim_users")}, policy=DLQ)
    aside = Aside()
    found = aside.good(made, events(spark, 1, 2, 3), open_until)
    assert {row.user_id: row.tier for row in found.collect()} == {1: "gold", 3: None}
    assert [row["user_id"] for row in aside.bad] == [2]
    assert "ivision by zero" in aside.bad[0]["wrong"]
    made.close()


@pytest.mark.full
def test_lookups_serve_the_session_of_a_streaming_query(spark: Any, users: Any, tmp_path: Path) -> None:
    clock = Clock()
    lookup = Lookup(connection=users.connection, table="dim_users", refresh_interval_ms=1_000)
    made = transform(WITH_TIERS, lookups={"users": lookup})
    made.lookups = Lookups({"users": lookup}, clock=clock)
    seen: list[Any] = []

    def batch(frame: Any, number: int) -> None:
        with ExitStack() as open_until:
            seen.append([row.tier for row in made.apply(frame, open_until).collect()])
        users.fill([(1, f"after {number}")])
        clock.now += 5

    events(spark, 1).coalesce(1).write.parquet(str(tmp_path / "in"))
    events(spark, 1).coalesce(1).write.mode("append").parquet(str(tmp_path / "in"))
    query = (
        spark.readStream.schema("user_id BIGINT, _event_ts TIMESTAMP")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(tmp_path / "in"))
    )
    started = query.writeStream.foreachBatch(batch).option("checkpointLocation", str(tmp_path / "state"))
    started.trigger(availableNow=True).start().awaitTermination()
    assert seen == [["gold"], ["after 0"]]
    made.close()
