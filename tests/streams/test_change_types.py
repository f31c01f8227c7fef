"""Tables that the first changes make: by the schema of the messages, and by what values look like where there is none."""

from __future__ import annotations

import base64
import logging
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ematix_flow import CDC, SQLiteConnection
from ematix_flow.foundation.errors import BadValue, PlanError
from tests.streams import kafka_session
from tests.streams.change_events import connect_schema, debezium
from tests.streams.change_files import Followed

KEYED: dict[str, Any] = {"target_primary_key": ["id"]}
DECIMAL = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}}
DAYS = {"type": "int32", "name": "io.debezium.time.Date"}


class Shop(Followed):
    """Changes into a database of one file."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "shop.db"
        super().__init__(SQLiteConnection("shop", path=str(self._path)), folder)

    def asked(self, statement: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self._path)) as client:
            found = client.execute(statement).fetchall()
            client.commit()
            return found


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    kafka_session.session(tmp_path, monkeypatch)
    return Shop(tmp_path)


def unscaled(number: int) -> str:
    return base64.b64encode(number.to_bytes(3, "big", signed=True)).decode()


def test_the_schema_of_the_messages_says_what_columns_are(shop: Shop) -> None:
    schema = connect_schema(
        **{"id": {"type": "int64"}, "a.b": {"type": "string"}, "note": {"type": "string"}, "doc": {"type": "string", "name": "io.debezium.data.Json"}},
        any={"type": "struct", "name": "io.debezium.data.VariableScaleDecimal"},
        prices={"type": "array", "items": DECIMAL}, days={"type": "array", "items": DAYS},
        price={**DECIMAL, "parameters": {"scale": "2", "connect.decimal.precision": "10"}},
        number={"type": "string", "name": "io.debezium.data.Uuid"}, born={"type": "string", "name": "io.debezium.time.IsoDate"},
    )  # fmt: skip
    row = {
        "id": 1, "a.b": "dotted", "note": "2026-01-02T03:04:05Z", "doc": '{"a": [1]}', "any": {"scale": 3, "value": "BNI="},
        "prices": [unscaled(-1234), None], "days": [20_000], "price": unscaled(1234),
        "number": "5C2D8EC1-0D9F-4E2B-9F5E-0242AC120002", "born": "7514-08-28Z",
    }  # fmt: skip
    shop(("main", "t"), debezium("c", row, schema=schema, lsn=1), **KEYED)
    shop(("main", "t"), debezium("c", {**row, "id": 2, "note": "n/a"}, schema=schema, lsn=2), **KEYED)
    assert shop.asked(
        'SELECT id, "a.b", note, json_extract(doc, \'$.a[0]\'), any + 0, prices, days, price + 0, number, born FROM t ORDER BY id'
    ) == [
        (number, "dotted", note, 1, 1.234, "[-12.34,null]", '["2024-10-04"]', 12.34, row["number"].lower(), "7514-08-28")
        for number, note in ((1, row["note"]), (2, "n/a"))
    ]  # fmt: skip


def test_values_that_no_schema_explains_are_warned_about(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    row = {"id": 1, "price": base64.b64encode(b"\x07").decode(), "at": 1_760_000_000_000, "word": "abcd"}
    with caplog.at_level(logging.WARNING):
        shop(("main", "t"), debezium("c", row, lsn=1), **KEYED)
    (warned,) = [text for text in caplog.messages if "have no schema" in text]
    assert "at looks like a moment" in warned
    assert "price like bytes in base64" in warned
    assert "word" not in warned


def test_changes_of_two_tables_are_not_mixed_unless_they_are_named(shop: Shop) -> None:
    def change(table: str, number: int) -> Any:
        return debezium("c", {"id": number, "name": table}, lsn=number, source={"table": table})

    both = ["shop.public.a", "shop.public.b"]
    shop(("main", "t"), change("a", 1), change("b", 2), cdc=CDC(source_tables=both), **KEYED)
    assert shop.asked("SELECT id, name FROM t ORDER BY id") == [(1, "a"), (2, "b")]
    with pytest.raises(PlanError, match=r"several source tables \('shop.public.a', 'shop.public.b'\)"):
        shop(("main", "t"), change("a", 3), change("b", 3), **KEYED)


def test_a_message_that_is_no_change_says_what_it_is_instead(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(BadValue, match=r"has no 'type' \(it looks like Debezium's\)"):
        shop(("main", "t"), debezium("c", {"id": 1}, lsn=1), cdc=CDC(envelope="maxwell"), **KEYED)
    assert not [record for record in caplog.records if record.name.startswith("py4j")]
