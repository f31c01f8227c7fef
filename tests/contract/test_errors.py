"""Bad input: one clear error of the right class with a next step, nothing loaded, no secret in it."""

from __future__ import annotations

import json
import os
import secrets
import sqlite3
import subprocess
import traceback
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from ematix_flow import JSON, UUID, BigInt, Boolean, Date, Integer, Numeric, SmallInt, String, Text, ematix
from ematix_flow.cli import main
from ematix_flow.declare import registry
from ematix_flow.foundation.errors import (
    BadValue,
    ConnectionFailed,
    FlowError,
    NullViolation,
    PermissionDenied,
    StorageFull,
    TextTooLong,
    Unreachable,
)
from tests.contract.loading import columns, declare, load, unique
from tests.harness import open_harness
from tests.harness.base import Harness

SERVERS = ("postgres", "mariadb", "mysql8")
FILES = ("sqlite", "duckdb")
LITTLE = "3m"
PASSWORD = "gehe1m/W@rt #7"
GOOD = {
    "id": "1", "small": "1", "short": "'abc'", "must": "'x'", "price": "1.5", "whole": "true", "born": "DATE'2026-01-31'",
    "doc": "'{}'", "key": "'00000000-0000-0000-0000-000000000000'",
}  # fmt: skip
BAD: list[tuple[str, str, type[FlowError], str]] = [
    ("must", "CAST(NULL AS STRING)", NullViolation, "NULL"),
    ("short", "'abcd'", TextTooLong, "more than 3 characters"),
    ("short", "'😀😀😀😀'", TextTooLong, "more than 3 characters"),
    ("id", "2147483648L", BadValue, "2147483648"),
    ("small", "-40000", BadValue, "-40000"),
    ("id", "CAST('NaN' AS DOUBLE)", BadValue, "NaN"),
    ("id", "CAST('Infinity' AS FLOAT)", BadValue, "Infinity"),
    ("id", "1.5D", BadValue, "1.5"),
    ("id", "'12a'", BadValue, "12a"),
    ("price", "1000.00", BadValue, "1000.00"),
    ("price", "'ten'", BadValue, "ten"),
    ("whole", "2", BadValue, "2"),
    ("born", "'2026-02-30'", BadValue, "2026-02-30"),
    ("doc", "'{'", BadValue, "{"),
    ("key", "'no-uuid'", BadValue, "no-uuid"),
]


def people() -> Any:
    return declare(
        {"id": Integer | None, "small": SmallInt | None, "short": String[3] | None, "must": Text, "price": Numeric[5, 2] | None,
         "whole": Boolean | None, "born": Date | None, "doc": JSON | None, "key": UUID | None}
    )  # fmt: skip


@pytest.mark.offers("append")
def test_a_row_that_breaks_the_declaration_loads_nothing(harness: Harness) -> None:
    table = people()

    def run(expressions: dict[str, str]) -> Any:
        chosen = ", ".join(f"{sql} AS `{name}`" for name, sql in expressions.items())
        good = ", ".join(f"{sql} AS `{name}`" for name, sql in GOOD.items())
        rows = f"SELECT {good} UNION ALL SELECT {chosen}" if expressions is GOOD else f"SELECT {chosen}"
        decorate = ematix.pipeline(
            target=table, target_connection=harness.connection, mode="append", name=f"bad_{table.__tablename__}"
        )
        return decorate(lambda spark: spark.sql(rows).coalesce(1)).sync()

    run(GOOD)
    before = harness.rows(table.spec())
    for column, expression, error, said in BAD:
        with pytest.raises(FlowError) as caught:
            run({**GOOD, column: expression})
        assert (type(caught.value), caught.value.exit_code) == (error, 4), f"{column} {expression}: {caught.value}"
        for word in (column, said, "nothing was loaded"):
            assert word in caught.value.what, f"{column} {expression}: {caught.value}"
        assert caught.value.hint
        assert "test_errors.py:" in str(caught.value)
    after = harness.rows(table.spec())
    assert len(before) == 2
    assert columns(after, ("id", "_batch_id")) == columns(before, ("id", "_batch_id"))


def broken_servers(harness: Any) -> dict[str, tuple[Any, type[FlowError]]]:
    """Connections that cannot work, and what each of them is called."""
    parts = urlsplit(harness.url)
    login, place = f"{parts.username}:{quote(PASSWORD, safe='')}", f"{parts.hostname}:{parts.port}"

    def at(address: str) -> Any:
        return replace(harness.connection, name="broken", url=parts._replace(netloc=address).geturl())

    return {
        "no server answers": (at(f"{login}@127.0.0.1:9"), Unreachable),
        "wrong password": (at(f"{login}@{place}"), ConnectionFailed),
        "no such user": (at(f"nobody:{quote(PASSWORD, safe='')}@{place}"), ConnectionFailed),
        "no such database": (replace(harness.connection, name="broken", url=f"{harness.url}_2"), ConnectionFailed),
    }


@pytest.mark.systems(*SERVERS)
def test_a_server_that_refuses_or_is_not_there_says_so_without_the_password(harness: Any, systems: Any) -> None:
    working, table = systems("sqlite"), declare({"id": BigInt})
    for what, (connection, error) in broken_servers(harness).items():
        for source, target in ((connection, working.connection), (working.connection, connection)):
            caught = _failed(source, target, table, "SELECT 1 AS id")
            assert type(caught) is error, f"{what}: {caught!r}"
            assert (caught.exit_code, caught.retryable) == (5, error is Unreachable)
            assert caught.hint
            _tells_no_secret(caught)


def _failed(source: Any, target: Any, table: Any, sql: str) -> FlowError:
    decorate = ematix.pipeline(
        target=table, target_connection=target, source_connection=source, mode="append", name=unique("failing")
    )
    with pytest.raises(FlowError) as caught:
        decorate(lambda conn: sql).sync()
    return caught.value


def _tells_no_secret(error: FlowError) -> None:
    told = [str(error), repr(error), json.dumps(error.to_dict(), ensure_ascii=False), repr(error.facts)]
    told.append("".join(traceback.format_exception(type(error), error, error.__traceback__)))
    # Not by reading the file: closing it would drop the locks that this process holds on its run log.
    with closing(sqlite3.connect(os.environ["EMATIX_FLOW_RUN_LOG_PATH"])) as log:
        told.append("\n".join(log.iterdump()))
    for text in told:
        for secret in (PASSWORD, quote(PASSWORD, safe=""), quote(PASSWORD)):
            assert secret not in text


@pytest.mark.systems(*FILES)
def test_a_file_that_is_no_database_is_left_alone_and_named(harness: Any, systems: Any, tmp_path: Path) -> None:
    other, table = systems("duckdb" if harness.name == "sqlite" else "sqlite"), declare({"id": BigInt})
    path = tmp_path / "notes.txt"
    path.write_text("these are no pages of a database, " * 200, encoding="utf-8")
    before = path.read_bytes()
    broken = replace(harness.connection, name="broken", path=str(path))
    for source, target in ((broken, other.connection), (other.connection, broken)):
        caught = _failed(source, target, table, "SELECT 1 AS id")
        assert (type(caught), caught.exit_code) == (ConnectionFailed, 5), str(caught)
        assert "path=" in str(caught.hint)
    assert path.read_bytes() == before
    missing = replace(harness.connection, name="broken", path=str(tmp_path / "missing" / "x.db"))
    caught = _failed(missing, other.connection, table, "SELECT 1 AS id")
    assert type(caught) is ConnectionFailed
    assert not (tmp_path / "missing").exists()


@pytest.mark.systems("delta", "files-parquet", "files-csv")
def test_a_lake_whose_path_is_a_file_is_refused(harness: Any, systems: Any, tmp_path: Path) -> None:
    table = declare({"id": BigInt})
    path = tmp_path / "notes.txt"
    path.write_text("no folder", encoding="utf-8")
    broken = replace(harness.connection, name="broken", path=str(path))
    caught = _failed(systems("sqlite").connection, broken, table, "SELECT 1 AS id")
    assert isinstance(caught, ConnectionFailed), str(caught)
    assert caught.exit_code == 5
    assert caught.hint
    assert path.read_text(encoding="utf-8") == "no folder"


@pytest.mark.systems(*SERVERS)
def test_a_login_without_the_right_is_reported_and_nothing_is_loaded(harness: Any, systems: Any) -> None:
    secret, working = declare({"id": BigInt}), systems("sqlite")
    load(harness, secret, [{"id": 1}], mode="append")
    connection = _guest(harness)
    reading = _failed(
        connection, working.connection, declare({"id": BigInt}), f"SELECT id FROM {secret.spec().qualified}"
    )
    writing = _failed(working.connection, connection, secret, "SELECT 2 AS id")
    creating = _failed(working.connection, connection, declare({"id": BigInt}), "SELECT 2 AS id")
    for caught in (reading, writing, creating):
        assert (type(caught), caught.exit_code) == (PermissionDenied, 5), str(caught)
        assert "grant" in str(caught.hint)
        _tells_no_secret(caught)
    assert columns(harness.rows(secret.spec()), ("id",)) == [(1,)]


def _guest(harness: Any) -> Any:
    """A login that may come in and nothing else."""
    name, parts = unique("guest"), urlsplit(harness.url)
    if harness.name == "postgres":
        harness.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{PASSWORD}'")
    else:
        harness.execute(f"CREATE USER '{name}'@'%' IDENTIFIED BY '{PASSWORD}'")
        harness.seed(declare({"id": BigInt}, schema=parts.path[1:], name="open").spec(), [{"id": 1}])
        harness.execute(f"GRANT SELECT ON {parts.path[1:]}.open TO '{name}'@'%'")
    address = f"{name}:{quote(PASSWORD, safe='')}@{parts.hostname}:{parts.port}"
    return replace(harness.connection, name="guest", url=parts._replace(netloc=address).geturl())


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own with room for little."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={LITTLE}", "tmpfs", str(place)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("this user may not mount a small file system; run it as root")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.mark.parametrize("system", ["sqlite", "duckdb", "delta", "files-parquet"])
def test_a_full_disk_is_reported_nothing_is_loaded_and_the_next_run_with_room_loads_it(
    system: str, small_disk: Path, request: pytest.FixtureRequest
) -> None:
    harness = open_harness(system, request, small_disk)
    table = declare({"id": BigInt, "pad": Text})
    load(harness, table, [{"id": 0, "pad": ""}], mode="append")
    large = [{"id": n, "pad": secrets.token_hex(20_000)} for n in range(1, 201)]
    with pytest.raises(FlowError) as caught:
        load(harness, table, large, mode="append")
    assert (type(caught.value), caught.value.exit_code, caught.value.retryable) == (StorageFull, 1, True), str(
        caught.value
    )
    assert "free space" in str(caught.value.hint)
    assert columns(harness.rows(table.spec()), ("id",)) == [(0,)]
    subprocess.run(["mount", "-o", "remount,size=200m", str(small_disk)], check=True)
    assert load(harness, table, large, mode="append").rows_inserted == 200
    assert len(harness.rows(table.spec())) == 201
    harness.close()


FULL = {
    "postgres": "CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS "
    "$$ BEGIN RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100'; END $$; "
    "CREATE TRIGGER {name} BEFORE INSERT ON {relation} FOR EACH ROW EXECUTE FUNCTION {name}()",
    "mysql": "CREATE TRIGGER {name} BEFORE INSERT ON {relation} FOR EACH ROW "
    "SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1114, MESSAGE_TEXT = 'The table is full'",
}


@pytest.mark.systems(*SERVERS)
def test_a_server_without_room_is_reported_and_nothing_is_loaded(harness: Any) -> None:
    table = declare({"id": BigInt})
    load(harness, table, [{"id": 1}], mode="append")
    spec, name = table.spec(), unique("full")
    relation = harness.relation(spec.schema, spec.name)
    place = f"{harness.quote(spec.schema)}.{name}"
    harness.execute(
        FULL[harness.backend].format(name=name if harness.backend == "postgres" else place, relation=relation)
    )
    with pytest.raises(StorageFull) as caught:
        load(harness, table, [{"id": 2}], mode="append")
    assert (caught.value.exit_code, caught.value.retryable) == (1, True)
    assert "free space" in str(caught.value.hint)
    assert columns(harness.rows(spec), ("id",)) == [(1,)]


MODULE = """
from ematix_flow import BigInt, Text, ematix


@ematix.table(schema="{schema}", name="{table}")
class Target:
    id: BigInt
    name: Text


def load(name, sql):
    decorate = ematix.pipeline(target=Target, target_connection="target", source_connection="source", mode="append", name=name)
    return decorate(lambda conn: sql)


load("nan", "SELECT CAST('NaN' AS DOUBLE PRECISION) AS id, 'x' AS name")
load("mismatch", "SELECT 'twelve' AS id, 'x' AS name")
load("range", "SELECT 9223372036854775808 AS id, 'x' AS name")
load("missing", "SELECT id, 'x' AS name FROM nowhere.at_all")
load("denied", "SELECT id, 'x' AS name FROM {secret}")
"""


def test_the_command_tells_an_error_of_a_server_in_one_message(
    systems: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    postgres, target = systems("postgres"), systems("duckdb")
    hidden, wanted = declare({"id": BigInt}).spec(), declare({"id": BigInt, "name": Text})
    postgres.seed(hidden, [{"id": 1}])
    load(target, wanted, [{"id": 0, "name": "kept"}], mode="append")
    spec = wanted.spec()
    parts = urlsplit(postgres.url)
    guest = _guest(postgres).url
    wrong = parts._replace(netloc=f"postgres:{quote(PASSWORD, safe='')}@{parts.hostname}:{parts.port}").geturl()
    module = tmp_path / "bad_input_pipelines.py"
    module.write_text(MODULE.format(schema=spec.schema, table=spec.name, secret=f"{hidden.schema}.{hidden.name}"))
    monkeypatch.setenv("EMATIX_FLOW_DSN_TARGET", f"duckdb:///{target.connection.path}")
    for name, url, code, said, command in [
        ("nan", postgres.url, 4, "NaN", "flow preview"),
        ("mismatch", postgres.url, 4, "twelve", "flow preview"),
        ("range", postgres.url, 4, "9223372036854775808", "flow preview"),
        ("missing", postgres.url, 3, "nowhere.at_all", "flow validate"),
        ("denied", guest, 5, "permission denied", "flow connections check"),
        ("nan", wrong, 5, "password", "flow connections check"),
    ]:
        monkeypatch.setenv("EMATIX_FLOW_DSN_SOURCE", url)
        registry.clear()
        capsys.readouterr()
        assert main(["run", name, "--module", str(module)]) == code
        out, err = capsys.readouterr()
        assert (out, err.count("✗")) == ("", 1), err
        for word in (said, "nothing was loaded", f"next: {command}"):
            assert word in err
        assert "Traceback" not in err
        assert PASSWORD not in err
        assert quote(PASSWORD, safe="") not in err
    registry.clear()
    assert columns(target.rows(spec), ("id", "name")) == [(0, "kept")]
