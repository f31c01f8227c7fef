"""What only PostgreSQL does: a stage becomes the table where no row has to stay; whoever creates tables does so alone."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any

import psycopg
import pytest

from ematix_flow import BigInt, PostgresConnection, String, pk
from ematix_flow.backends.postgres.dialect import PostgresDialect
from ematix_flow.backends.postgres.session import connect
from ematix_flow.families.sql.metadata_tables import MetadataTables
from ematix_flow.foundation.errors import DuplicateKeys, FlowError
from tests.cluster.places import wait_for
from tests.contract.conftest import Systems
from tests.contract.loading import columns, counts, declare, load
from tests.harness.postgres import PostgresHarness

HANGING_ON_IT = {
    "a view": "CREATE VIEW {schema}.seen AS SELECT id FROM {table}",
    "a grant": "GRANT SELECT ON {table} TO PUBLIC",
    "a grant on a column": "GRANT SELECT (id) ON {table} TO PUBLIC",
    "a comment": "COMMENT ON COLUMN {table}.name IS 'kept'",
    "an index": "CREATE INDEX ON {table} (name)",
    "a check": "ALTER TABLE {table} ADD CHECK (id > 0)",
    "a default": "ALTER TABLE {table} ALTER name SET DEFAULT 'x'",
    "a column of its own": "ALTER TABLE {table} ADD COLUMN more text",
    "row security": "ALTER TABLE {table} ENABLE ROW LEVEL SECURITY",
    "a publication": "CREATE PUBLICATION flow_kept FOR TABLE {table}",
    "the row type": "CREATE TABLE {schema}.typed (one {table})",
    "a setting": "ALTER TABLE {table} SET (fillfactor = 70)",
}


@pytest.fixture
def server(systems: Systems) -> PostgresHarness:
    """A database of its own."""
    found = systems("postgres")
    assert isinstance(found, PostgresHarness)
    return found


def small() -> Any:
    return declare({"id": Annotated[BigInt, pk()], "name": String[5]})


def identity(server: PostgresHarness, table: Any) -> int:
    [(oid,)] = server.ask(f"SELECT '{table.spec().qualified}'::regclass::oid")[1]
    return int(oid)


def definition(server: PostgresHarness, table: Any) -> list[Any]:
    relation = f"'{table.spec().qualified}'::regclass"
    found = server.ask(
        "SELECT attname, format_type(atttypid, atttypmod), attnotnull, atthasdef FROM pg_attribute "
        f"WHERE attrelid = {relation} AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
    )[1]
    keys = server.ask(f"SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = {relation}")[1]
    return [*found, *keys]


def rows(server: PostgresHarness, table: Any) -> Any:
    return columns(server.rows(table.spec()), ("id", "name"))


def test_truncate_writes_each_row_once_where_the_table_can_be_replaced(server: PostgresHarness) -> None:
    table = small()
    load(server, table, [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}], mode="truncate")
    before, made = identity(server, table), definition(server, table)
    result = load(server, table, [{"id": 2, "name": "c"}], mode="truncate")
    assert counts(result) == {"inserted": 1, "deleted": 2}
    assert rows(server, table) == [(2, "c")]
    assert identity(server, table) != before
    assert definition(server, table) == made
    assert server.ask("SELECT relname FROM pg_class WHERE relname LIKE 'stage%'")[1] == []


@pytest.mark.parametrize("what", HANGING_ON_IT)
def test_truncate_keeps_a_table_that_something_hangs_on(server: PostgresHarness, what: str) -> None:
    table = small()
    load(server, table, [{"id": 1, "name": "a"}], mode="append")
    spec = table.spec()
    server.ask(HANGING_ON_IT[what].format(schema=spec.schema, table=spec.qualified))
    before = identity(server, table)
    try:
        load(server, table, [{"id": 2, "name": "c"}], mode="truncate", on_drift="warn")
    finally:
        server.ask("DROP PUBLICATION IF EXISTS flow_kept")
    assert identity(server, table) == before
    assert rows(server, table) == [(2, "c")]


def test_truncate_is_refused_where_another_table_refers_to_this_one(server: PostgresHarness) -> None:
    table = small()
    load(server, table, [{"id": 1, "name": "a"}], mode="append")
    spec = table.spec()
    server.ask(f"CREATE TABLE {spec.schema}.child (id bigint REFERENCES {spec.qualified})")
    with pytest.raises(FlowError, match="foreign key"):
        load(server, table, [{"id": 2, "name": "c"}], mode="truncate")
    assert rows(server, table) == [(1, "a")]


def test_truncate_keeps_the_table_while_a_reader_has_an_earlier_snapshot(server: PostgresHarness) -> None:
    """Who began before the tasks had committed would see the rows of some of them in a new table."""
    table = small()
    load(server, table, [{"id": 1, "name": "a"}], mode="truncate")
    before = identity(server, table)
    with psycopg.connect(server.url) as reader:
        reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        reader.execute("SELECT 1")
        load(server, table, [{"id": 2, "name": "c"}, {"id": 3, "name": "d"}], mode="truncate")
        assert reader.execute(f"SELECT COUNT(*) FROM {table.spec().qualified}".encode()).fetchone() == (0,)
    assert identity(server, table) == before
    assert rows(server, table) == [(2, "c"), (3, "d")]


def test_keys_that_come_twice_leave_the_old_table(server: PostgresHarness) -> None:
    table = small()
    load(server, table, [{"id": 1, "name": "a"}], mode="truncate")
    with pytest.raises(DuplicateKeys, match=r"\(id\)=\(2\)"):
        load(server, table, [{"id": 2, "name": "b"}, {"id": 2, "name": "c"}], mode="truncate")
    assert rows(server, table) == [(1, "a")]
    assert server.ask("SELECT relname FROM pg_class WHERE relname LIKE 'stage%'")[1] == []


def test_an_append_to_an_empty_table_writes_each_row_once(server: PostgresHarness) -> None:
    table = small()
    spec = table.spec()
    load(server, table, [], mode="append")
    empty, made = identity(server, table), definition(server, table)
    assert counts(load(server, table, [{"id": 1, "name": "a"}], mode="append")) == {"inserted": 1}
    first = identity(server, table)
    assert first != empty
    assert definition(server, table) == made
    assert counts(load(server, table, [{"id": 2, "name": "b"}], mode="append")) == {"inserted": 1}
    assert identity(server, table) == first, "rows that are there stay"
    server.ask(f"DELETE FROM {spec.qualified}")
    load(server, table, [{"id": 3, "name": "c"}], mode="append")
    assert identity(server, table) == first, "rows that were deleted may still be seen by others"
    assert rows(server, table) == [(3, "c")]


def test_an_append_keeps_an_empty_table_that_something_hangs_on(server: PostgresHarness) -> None:
    table = small()
    load(server, table, [], mode="append")
    server.ask(f"GRANT SELECT ON {table.spec().qualified} TO PUBLIC")
    before = identity(server, table)
    load(server, table, [{"id": 1, "name": "a"}], mode="append")
    assert identity(server, table) == before
    assert rows(server, table) == [(1, "a")]


@pytest.mark.embedded("two loads wait side by side in threads of one process")
def test_appends_that_find_the_same_empty_table_both_arrive(server: PostgresHarness) -> None:
    """Both stage for an empty table; while somebody reads it, both wait to put their stage in its place."""
    table = small()
    load(server, table, [], mode="append")
    name = table.spec().qualified
    waiting = f"SELECT COUNT(*) FROM pg_locks WHERE relation = '{name}'::regclass AND NOT granted"
    with psycopg.connect(server.url) as other, ThreadPoolExecutor(2) as pool:
        other.execute(f"LOCK TABLE {name} IN SHARE MODE".encode())
        loads = [
            pool.submit(load, server, table, [{"id": number, "name": "x"}], mode="append", name=f"append_{number}")
            for number in (1, 2)
        ]
        wait_for(lambda: server.ask(waiting)[1] == [(2,)] or any(one.done() for one in loads))
        other.rollback()
        assert [counts(one.result()) for one in loads] == [{"inserted": 1}, {"inserted": 1}]
    assert rows(server, table) == [(1, "x"), (2, "x")]


def test_keys_that_come_twice_leave_an_empty_table_empty(server: PostgresHarness) -> None:
    table = small()
    load(server, table, [], mode="append")
    with pytest.raises(DuplicateKeys, match=r"\(id\)=\(2\)"):
        load(server, table, [{"id": 2, "name": "b"}, {"id": 2, "name": "c"}], mode="append")
    assert rows(server, table) == []


def test_sessions_that_create_the_same_tables_at_once_all_succeed(fresh_postgres: str) -> None:
    connection = PostgresConnection(name="new", url=fresh_postgres)
    together = threading.Barrier(8)

    def create() -> None:
        with connect(connection) as session:
            together.wait(timeout=30)
            MetadataTables(session, PostgresDialect()).ensure()

    for _ in range(3):
        with psycopg.connect(fresh_postgres, autocommit=True) as client:
            client.execute("DROP SCHEMA IF EXISTS ematix_flow CASCADE")
        with ThreadPoolExecutor(8) as threads:
            for created in [threads.submit(create) for _ in range(8)]:
                created.result()
    with psycopg.connect(fresh_postgres) as client:
        assert client.execute("SELECT count(*) FROM ematix_flow.commits").fetchone() == (0,)
