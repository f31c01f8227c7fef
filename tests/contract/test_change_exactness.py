"""Change data that is easily lost: changes whose clocks contradict the log, values that were left out, rows that came and went."""

from __future__ import annotations

import base64
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ematix_flow import CDC, JSONB, Annotated, BigInt, Bytes, ManagedTable, Text, TimestampTZ, pk
from tests.contract.loading import declare, unique
from tests.harness.base import Harness
from tests.streams.change_events import debezium, maxwell, mysql
from tests.streams.change_files import Followed

pytestmark = [pytest.mark.offers("changes"), pytest.mark.embedded("a stream's driver is its own process")]
NOT_THERE = "__debezium_unavailable_value"


@pytest.fixture
def follow(harness: Harness, tmp_path: Path) -> Followed:
    return Followed(harness.connection, tmp_path)


def named() -> type[ManagedTable]:
    return declare({"id": Annotated[BigInt, pk()], "name": Text | None})


def row(number: int, name: str | None) -> dict[str, Any]:
    return {"id": number, "name": name}


def names(harness: Harness, table: type[ManagedTable]) -> dict[int, str]:
    return {found["id"]: found["name"] for found in harness.rows(table.spec())}


@pytest.mark.by_default("postgres")
def test_the_log_decides_and_not_the_clock_of_a_statement(follow: Followed, harness: Harness) -> None:
    """Without GTIDs, MySQL stamps an event when its statement begins: one that waited for a lock is stamped too early."""
    table = named()
    follow(
        table,
        mysql("c", row(1, "new"), pos=100, at=0), mysql("c", row(2, "new"), pos=200, at=0),
        mysql("u", row(1, "of A"), pos=300, at=2000), mysql("u", row(1, "of B, which waited"), pos=400, at=1000),
        mysql("u", row(2, "of A"), pos=500, at=9000),
    )  # fmt: skip
    assert names(harness, table) == {1: "of B, which waited", 2: "of A"}
    follow(table, mysql("u", row(2, "of B, which waited"), pos=600, at=3000))
    assert names(harness, table)[2] == "of B, which waited"
    follow(
        table,
        mysql("u", row(2, "of A"), pos=500, at=9000), mysql("u", row(1, "of A"), pos=300, at=2000),
        mysql("d", before=row(1, None), file=4, pos=10, at=500),
    )  # fmt: skip
    assert names(harness, table) == {2: "of B, which waited"}


@pytest.mark.full("the same order by another connector")
@pytest.mark.systems("sqlite")
def test_maxwells_and_postgres_changes_are_ordered_by_their_logs(follow: Followed, harness: Harness) -> None:
    table = named()
    follow(
        table,
        maxwell("insert", row(1, "A"), at=5, position="master.000002:900"),
        maxwell("update", row(1, "B"), at=3, position="master.000010:100"),
        cdc=CDC(envelope="maxwell"),
    )
    assert names(harness, table) == {1: "B"}
    again = {"name": unique("pg")}
    follow(table, debezium("u", row(2, "before the clock stepped back"), at=60_000, lsn=9), **again)
    follow(table, debezium("u", row(2, "after it"), at=0, lsn=10), **again)
    assert names(harness, table)[2] == "after it"


@pytest.mark.systems("sqlite")
def test_the_clock_decides_between_logs_and_where_there_is_none(follow: Followed, harness: Harness) -> None:
    table = named()
    follow(
        table,
        mysql("c", row(1, "of the old server"), pos=900, file=50, at=1000),
        mysql("c", row(2, "x"), pos=901, at=1000),
    )
    follow(
        table,
        mysql("u", row(1, "of the new server"), pos=10, file=1, server=2, at=2000),
        debezium("u", row(2, "late, of no log"), at=500, source={"schema": None}),
    )
    assert names(harness, table) == {1: "of the new server", 2: "x"}


@pytest.mark.systems("sqlite")
def test_a_gate_of_the_version_before_goes_on(
    follow: Followed, harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    """Its places have no origin, and are taken to be of the same log."""
    table = named()
    follow(table, mysql("c", row(1, "known"), pos=500, at=1000), mysql("c", row(2, "known"), pos=501, at=1000))
    with closing(sqlite3.connect(harness.connection.path)) as client:  # type: ignore[attr-defined]
        own = "WHERE pipeline_name LIKE ? || '::%'"
        gate = "ematix_flow_cdc_idempotency"
        client.execute(f"UPDATE {gate} SET source_position = substr(source_position, 10) {own}", (follow.name,))
        client.commit()
        kept = client.execute(f"SELECT min(source_position) FROM {gate} {own}", (follow.name,)).fetchone()[0]
    assert kept == "000000000003:00000000000000000500:0000000000"
    follow(
        table, mysql("u", row(1, "came again"), pos=400, at=60_000), mysql("u", row(2, "news"), pos=600, at=500)
    )  # fmt: skip
    assert names(harness, table) == {1: "known", 2: "news"}
    assert [text for text in caplog.messages if "although their clock is later" in text]


def big() -> type[ManagedTable]:
    return declare(
        {
            "id": Annotated[BigInt, pk()], "name": Text | None, "doc": Text, "data": Bytes | None, "tags": JSONB | None,
            "list": JSONB | None, "more": Text | None,
        }
    )  # fmt: skip


@pytest.mark.by_default("mariadb", "duckdb")
def test_a_large_value_that_did_not_change_stays(follow: Followed, harness: Harness) -> None:
    """PostgreSQL leaves it out of an update, and Debezium writes a placeholder in its stead."""
    table = big()
    whole = {
        "name": "one", "doc": "long", "data": base64.b64encode(b"\x00bytes").decode(), "tags": '{"a": 1}', "list": ["x", "y"],
        "more": "text",
    }  # fmt: skip
    left_out = {
        "doc": NOT_THERE, "data": base64.b64encode(NOT_THERE.encode()).decode(), "tags": NOT_THERE, "list": [NOT_THERE],
        "more": NOT_THERE,
    }  # fmt: skip
    follow(table, debezium("c", {"id": 1, **whole}, lsn=1), debezium("c", {"id": 2, **whole}, lsn=2))
    follow(
        table,
        debezium("u", {"id": 1, **left_out, "name": "changed", "more": None}, lsn=10),
        debezium("u", {"id": 2, **left_out, "name": "two", "doc": "new"}, lsn=11),
        debezium("u", {"id": 2, **left_out, "name": "two, changed"}, lsn=12),
        debezium("c", {"id": 3, **whole}, lsn=13), debezium("u", {"id": 3, **left_out, "name": "three"}, lsn=14),
    )  # fmt: skip
    found = {one["id"]: one for one in harness.rows(table.spec())}
    kept = {"data": b"\x00bytes", "tags": {"a": 1}, "list": ["x", "y"]}
    assert {name: found[1][name] for name in ("name", "doc", "more", *kept)} == {
        "name": "changed", "doc": "long", "more": None, **kept,
    }  # fmt: skip
    assert {name: found[2][name] for name in ("name", "doc", "more", *kept)} == {
        "name": "two, changed", "doc": "new", "more": "text", **kept,
    }  # fmt: skip
    assert {name: found[3][name] for name in ("name", "doc", "more", *kept)} == {
        "name": "three", "doc": "long", "more": "text", **kept,
    }  # fmt: skip


@pytest.mark.systems("sqlite")
def test_every_way_to_write_a_value_that_is_left_out_is_known_also_where_letters_are_kept(
    follow: Followed, harness: Harness
) -> None:
    table = declare(
        {"id": Annotated[BigInt, pk()], "doc": Text, "hex": Text | None, "numbers": JSONB | None, "pairs": JSONB | None,
         "uuids": JSONB | None}
    )  # fmt: skip
    whole = {
        "doc": "long",
        "hex": "00",
        "numbers": [1, 2],
        "pairs": {"a": "b"},
        "uuids": ["5c2d8ec1-0d9f-4e2b-9f5e-0242ac120002"],
    }
    left_out = {
        "doc": NOT_THERE, "hex": NOT_THERE.encode().hex(), "numbers": list(NOT_THERE.encode()), "pairs": {NOT_THERE: NOT_THERE},
        "uuids": ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"],
    }  # fmt: skip
    follow(table, debezium("c", {"id": 1, **whole}, lsn=1), transform_on_error="dlq")
    follow(table, debezium("u", {"id": 1, **left_out}, lsn=2), transform_on_error="dlq")
    (found,) = harness.rows(table.spec())
    assert {name: found[name] for name in whole} == whole


@pytest.mark.by_default("sqlite")
def test_a_row_that_comes_and_goes_in_one_batch_is_there_as_deleted(follow: Followed, harness: Harness) -> None:
    table = named()
    softly = CDC(delete_mode="soft", soft_delete_column="gone_at")

    def found() -> dict[int, tuple[str, bool]]:
        spec = declare({"gone_at": TimestampTZ | None}).spec()
        rows = harness.canonical_rows(spec, harness.raw_rows(table.spec().schema, table.spec().name))
        return {int(one["id"]): (one["name"], one["gone_at"] is not None) for one in rows}

    follow(
        table, debezium("c", row(1, "one"), lsn=1), debezium("c", row(2, "two"), lsn=2), debezium("d", before={"id": 2}, lsn=3),
        debezium("d", before={"id": 9}, lsn=4), cdc=softly,
    )  # fmt: skip
    assert found() == {1: ("one", False), 2: ("two", True)}
    follow(
        table, debezium("u", row(1, "one, changed"), lsn=5), debezium("d", before={"id": 1}, lsn=6),
        debezium("c", row(2, "again"), lsn=7), cdc=softly,
    )  # fmt: skip
    assert found() == {1: ("one, changed", True), 2: ("again", False)}
