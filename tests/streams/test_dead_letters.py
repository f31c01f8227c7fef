"""Dead letters in their table: kept with everything about them, and leased to one replay at a time."""

from __future__ import annotations

import base64
import json
import threading
import warnings
from collections.abc import Mapping
from contextlib import closing, suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from ematix_flow import (
    DuckDBConnection,
    KafkaConnection,
    MySQLConnection,
    PostgresConnection,
    SQLiteConnection,
)
from ematix_flow.backends.catalog import backend_for
from ematix_flow.contract.shape import TargetShape
from ematix_flow.foundation.errors import UnknownName, Unreachable
from ematix_flow.planning.drift import plan_ddl
from ematix_flow.streaming.dlq.dead_letter import DeadLetter, LetterSelection
from ematix_flow.streaming.dlq.letters import RECORDS
from ematix_flow.streaming.dlq.replay_lease import LEASE_SECONDS
from ematix_flow.streaming.dlq.table import DeadLetterTable, ReplayFailure
from tests.streams.operated import HEALED, declared, here, shop, toml

pytestmark = pytest.mark.usefixtures("homes")
ALL = LetterSelection()
BEGAN = datetime(2026, 1, 31, 10, 0, tzinfo=timezone.utc)


@pytest.fixture(
    params=[
        "sqlite",
        "postgres",
        pytest.param("mariadb", marks=pytest.mark.full("PostgreSQL shows the same on a server")),
        pytest.param("duckdb", marks=pytest.mark.full("SQLite shows the same in a file")),
    ]
)
def letters(request: pytest.FixtureRequest, tmp_path: Path) -> DeadLetterTable:
    """Five letters of one stream, and one of another."""
    connection = {
        "sqlite": lambda: SQLiteConnection("kept", path=str(tmp_path / "kept.db")),
        "duckdb": lambda: DuckDBConnection("kept", path=str(tmp_path / "kept.duckdb")),
        "postgres": lambda: PostgresConnection("kept", url=request.getfixturevalue("fresh_postgres")),
        "mariadb": lambda: MySQLConnection("kept", url=request.getfixturevalue("fresh_mariadb")),
    }[request.param]()
    store_letters(connection, {"orders": 5, "others": 1})
    return DeadLetterTable.of(_never_run(connection))


def store_letters(connection: Any, streams: Mapping[str, int]) -> None:
    """So many letters of each stream, and no others."""
    backend = backend_for(connection)
    assert backend.client is not None
    assert backend.ddl is not None
    ddl, shape = backend.ddl(connection), TargetShape(RECORDS, RECORDS)
    ddl.apply(shape, plan_ddl(shape, ddl.inspect(shape), ddl.stored_type).steps)
    table = DeadLetterTable.of(_never_run(connection))
    values = [values_of(table.dialect, name, number) for name, count in streams.items() for number in range(count)]
    with closing(backend.client(connection)) as client:
        client.execute(f"DELETE FROM {table.table}")  # a server keeps its database from test to test
        client.execute(
            f"INSERT INTO {table.table} ({table.dialect.names(RECORDS.column_names)}) VALUES {', '.join(values)}"
        )


def values_of(dialect: Any, stream: str, number: int) -> str:
    """A letter as the stream writes it; the payload is no text."""
    text = dialect.text_literal
    digits = {"postgres": "'\\x{}'::bytea", "duckdb": "unhex('{}')"}.get(dialect.name, "x'{}'")
    at = dialect.instant(BEGAN + timedelta(minutes=number))
    one = f"{number:02x}{'ab' * 31}" if stream == "orders" else "ff" * 32
    place = text(json.dumps({"partition": 0, "offset": number}))
    return "(" + ", ".join([
        text(one), text(stream), "'decode'", text(f"it's\\broken {number}"), "NULL", "'orders'", place,
        digits.format(b"\x00k".hex()), "NULL", digits.format((b"\x00\xff'" + bytes([number])).hex()), "'json'", "NULL", at,
        "1", "'pending'", "NULL", "''", "7", "'first'",
    ]) + ")"  # fmt: skip


def _never_run(connection: Any) -> Any:
    source = KafkaConnection("events", bootstrap_servers="127.0.0.1:1")
    return declared(
        name="orders", source=source, source_query="orders", target=connection, target_table=("shop", "orders"),
        dlq_store="table",
    )  # fmt: skip


def test_looking_for_letters_makes_no_database(tmp_path: Path) -> None:
    letters = DeadLetterTable.of(_never_run(SQLiteConnection("kept", path=str(tmp_path / "kept.db"))))
    assert (letters.listed(), letters.get("00"), letters.waiting(ALL), letters.expired_leases()) == ([], None, [], [])
    assert (letters.stats()["scanned"], letters.park(ALL), letters.purge(ALL)) == (0, 0, 0)
    assert not (tmp_path / "kept.db").exists()


def test_letters_are_listed_and_shown_as_they_came(letters: DeadLetterTable) -> None:
    found = letters.listed(limit=3)
    assert [letter.error for letter in found] == ["it's\\broken 4", "it's\\broken 3", "it's\\broken 2"]
    assert [letter.failed_at for letter in letters.listed(limit=1, offset=4)] == [BEGAN]
    shown = letters.get("03")
    assert shown is not None
    assert (shown.payload, shown.key, shown.place, shown.batch) == (
        b"\x00\xff'\x03",
        b"\x00k",
        {"partition": 0, "offset": 3},
        7,
    )
    assert letters.get("0e") is None
    assert letters.get("ff") is None  # another stream's
    with pytest.raises(UnknownName, match="several"):
        letters.get("0")
    told = letters.stats(BEGAN + timedelta(minutes=6))
    assert (told["depth"], told["by_stage"]) == ({"pending": 5, "leased": 0, "parked": 0}, {"decode": 5})
    assert told["arrivals"] == {"last_1m": 0, "last_5m": 4, "last_15m": 5, "last_60m": 5}


def test_a_letter_is_leased_to_one_replay_and_comes_free_when_the_lease_is_over(letters: DeadLetterTable) -> None:
    ids = [one for one, _ in letters.waiting(ALL)]
    first, second = soon(1), soon(2)
    assert [letter.attempt for letter in letters.lease(ids[:3], first)] == [2, 2, 2]
    assert [letter.id for letter in letters.lease(ids, second)] == ids[3:]
    assert letters.waiting(ALL) == []
    assert letters.expired_leases() == []
    over = datetime.now(timezone.utc) - timedelta(seconds=1)
    assert letters.renew(first, over)
    assert not letters.renew(first, over)
    assert letters.expired_leases() == [over]
    third = soon(3)
    taken = letters.take_over(over, third)
    assert [(letter.id, letter.attempt) for letter in taken] == [(one, 2) for one in ids[:3]]
    assert letters.take_over(over, soon(4)) == []
    letters.mark_done(taken)
    assert letters.stats()["depth"] == {"pending": 0, "leased": 2, "parked": 0}


def test_what_fails_again_goes_back_and_is_parked_after_its_last_try(letters: DeadLetterTable) -> None:
    taken = letters.lease([one for one, _ in letters.waiting(ALL)], soon(1))
    same, other, twice = taken[:3]
    failures = [
        ReplayFailure(same, same.id, "decode", "still it's\\broken\x00", None),
        ReplayFailure(other, "aa" * 32, "write", "too long", "shop.orders"),
        ReplayFailure(twice, "bb" * 32, "write", "too long", "shop.orders"),
        ReplayFailure(twice, "cc" * 32, "write", "too short", "shop.copies"),
    ]
    assert letters.return_failed(failures, most_attempts=3) == 0
    letters.mark_done(taken[3:])
    found = {letter.id: letter for letter in letters.listed()}
    assert set(found) == {same.id, "aa" * 32, "bb" * 32, "cc" * 32}
    assert {(letter.status, letter.attempt) for letter in found.values()} == {("pending", 2)}
    assert found["cc" * 32].target == "shop.copies"
    assert found[same.id].error == "still it's\\broken\ufffd"
    copied = letters.get("cc")
    assert copied is not None
    assert (copied.payload, copied.place) == (twice.payload, twice.place)
    again = letters.lease([same.id], soon(2))
    assert letters.return_failed([ReplayFailure(again[0], same.id, "decode", "no", None)], most_attempts=3) == 1
    assert [letter.status for letter in letters.listed("parked")] == ["parked"]
    assert same.id not in [one for one, _ in letters.waiting(ALL)]
    assert letters.waiting(LetterSelection(ids=(same.id,))) == [(same.id, None)]


def test_a_letter_that_some_targets_take_is_kept_until_they_have_it(letters: DeadLetterTable) -> None:
    taken = letters.lease([one for one, _ in letters.waiting(ALL)], soon(1))
    refused = ReplayFailure(taken[0], "aa" * 32, "write", "too long", "shop.orders")
    for _ in range(2):  # whoever dies behind this does it again
        letters.return_failed([refused], most_attempts=3, also_taken={taken[0].id})
    assert {letter.id: letter.status for letter in letters.listed()} == {
        **{letter.id: "leased" for letter in taken}, "aa" * 32: "pending",
    }  # fmt: skip


def test_letters_are_parked_and_purged_but_not_while_a_replay_has_them(letters: DeadLetterTable) -> None:
    ids = [one for one, _ in letters.waiting(ALL)]
    letters.lease(ids[:1], soon(1))
    assert letters.park(LetterSelection(ids=tuple(ids[:2]))) == 1
    assert letters.purge(LetterSelection(older_than=timedelta(days=36_500))) == 0
    assert letters.purge(LetterSelection(ids=(ids[1],))) == 1
    assert letters.purge(LetterSelection(older_than=timedelta(days=1))) == 3
    assert [letter.id for letter in letters.listed()] == ids[:1]


def test_of_many_replays_at_once_each_letter_belongs_to_one(letters: DeadLetterTable) -> None:
    ids, taken, lock = [one for one, _ in letters.waiting(ALL)], list[str](), threading.Lock()

    def take(number: int) -> None:
        with suppress(Unreachable):  # DuckDB refuses whoever comes between
            mine = letters.lease(ids, soon(number))
            with lock:
                taken.extend(letter.id for letter in mine)

    threads = [threading.Thread(target=take, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == ids


def soon(number: int) -> datetime:
    return datetime.now(timezone.utc) + timedelta(seconds=LEASE_SECONDS, microseconds=number)


def test_the_commands_list_show_park_and_purge(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("warnings.showwarning", warnings.showwarning)
    (tmp_path / "pipeline.toml").write_text(toml("orders", "orders", "127.0.0.1:1", tmp_path, "orders", HEALED))
    assert here(capsys, "dlq", "list")[::2] == (0, "orders: no dead letters\n")
    store_letters(shop(tmp_path), {"orders": 5})
    code, out, err = here(capsys, "dlq", "list", "-n", "2")
    assert (code, len(out.splitlines()), err) == (0, 3, "orders: 5 pending\n")
    told = json.loads(here(capsys, "dlq", "list", "--json")[1])
    assert (told["depth"], len(told["records"])) == ({"pending": 5, "leased": 0, "parked": 0}, 5)
    code, out, _ = here(capsys, "dlq", "show", "03ab", "--json")
    assert (code, json.loads(out)["payload_base64"]) == (0, base64.b64encode(b"\x00\xff'\x03").decode())
    assert "0x00ff2703" in here(capsys, "dlq", "show", "03ab")[1]
    assert here(capsys, "dlq", "park", "03ab", "04ab")[:2] == (0, "orders  2 parked\n")
    assert json.loads(here(capsys, "dlq", "list", "--status", "parked", "--json")[1])["depth"]["parked"] == 2
    code, _, err = here(capsys, "dlq", "purge", "ee")
    assert (code, "flow dlq list orders" in err) == (2, True)
    code, _, err = here(capsys, "dlq", "replay")
    assert (code, "say --all" in err) == (2, True)
    assert here(capsys, "dlq", "purge", "--older-than", "soon")[0] == 2
    assert json.loads(here(capsys, "dlq", "purge", "--older-than", "1d", "--json")[1]) == {
        "pipeline": "orders",
        "purged": 5,
    }
    assert here(capsys, "dlq", "list", "nobody")[0] == 2


def test_a_letter_is_reported_without_a_database() -> None:
    letter = DeadLetter.of(
        {
            "id": "ab", "pipeline_name": "orders", "stage": "write", "error": "no", "payload": b"x" * 5000,
            "payload_format": "json", "failed_at": "2026-01-31 10:00:00.000000+00:00", "attempt": 1, "status": "leased",
            "leased_until": "2026-01-31 10:01:00.000000+00:00", "batch": 3,
        }
    )  # fmt: skip
    assert letter.as_seen(letter.failed_at).status == "leased"
    assert letter.as_seen(letter.failed_at + timedelta(minutes=2)).status == "pending"
    told = letter.to_dict()
    assert (len(told["payload_preview"]), told["payload_size"], told["payload_truncated"]) == (4096, 5000, True)
