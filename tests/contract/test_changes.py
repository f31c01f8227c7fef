"""Change data into every system that takes it: rows follow their source, however often and in which order they are change."""

from __future__ import annotations

import json
import logging
import os
import sqlite3
from contextlib import closing
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from ematix_flow import (
    CDC,
    JSONB,
    Annotated,
    BigInt,
    Bytes,
    Date,
    KafkaConnection,
    ManagedTable,
    Numeric,
    ObjectStoreLocalConnection,
    Text,
    Timestamp,
    TimestampTZ,
    pk,
    run_streaming_pipeline,
)
from ematix_flow.foundation.clock import now
from ematix_flow.foundation.errors import BadValue, DriftError
from ematix_flow.run_log.sqlite import SqliteRunLog
from ematix_flow.streaming.runtime.checkpoint_folder import CheckpointFolder
from tests.contract.loading import declare, unique
from tests.harness.base import Harness
from tests.services.kafka import Kafka
from tests.streams.change_events import T0, Message, connect_schema, debezium, maxwell, tombstone
from tests.streams.kafka_topics import new_topic, send

pytestmark = [pytest.mark.offers("changes"), pytest.mark.embedded("a stream's driver is its own process")]
BEGAN = datetime.fromtimestamp(T0 / 1000, timezone.utc)


class Mirror:
    """A topic of changes, a table that follows them, and a stream that is drained between the two."""

    def __init__(self, harness: Harness, kafka: Kafka, folder: Path) -> None:
        self.harness, self._kafka, self.folder = harness, kafka, folder
        self.topic, self.name = new_topic(kafka), unique("mirror")

    def __call__(self, target: Any, *messages: Message, cdc: CDC | None = None, **options: Any) -> Any:
        """Send the messages and drain them."""
        send(self._kafka, self.topic, messages)
        if isinstance(target, tuple):
            options |= {"target": self.harness.connection, "target_table": target}
        else:
            options |= {"target": target, "target_connection": self.harness.connection}
        source = KafkaConnection(name="changes", bootstrap_servers=self._kafka.open, group_id=self.name)
        always = {"name": self.name, "checkpoint": str(self.folder / "checkpoint"), "cdc": cdc or CDC()}
        return run_streaming_pipeline(source=source, source_query=self.topic, once=True, **{**always, **options})

    def figures(self) -> dict[str, int]:
        """What the last drain has counted of changes."""
        change = SqliteRunLog(os.environ["EMATIX_FLOW_RUN_LOG_PATH"]).list_runs(pipeline=self.name)[0][0].extras
        short = (name.removeprefix("cdc_").removesuffix("_total") for name in change if name.startswith("cdc_"))
        return {name: int(change[f"cdc_{name}_total"]) for name in short if change[f"cdc_{name}_total"]}

    def letters(self) -> list[tuple[str, str]]:
        """Stage and error of the dead letters: in the target, or, where that is a lake, beside the checkpoint."""
        beside = self.folder / "checkpoint" / "dead_letters.db"
        if beside.exists():
            with closing(sqlite3.connect(beside)) as client:
                return sorted(client.execute("SELECT stage, error FROM ematix_flow_dlq_records"))
        found = self.harness.raw_rows("ematix_flow", "dlq_records")
        return sorted((one["stage"], str(one["error"])) for one in found if one["pipeline_name"] == self.name)

    def begin_anew(self) -> None:
        """What a rewind to the beginning does."""
        CheckpointFolder(self.folder / "checkpoint").start_new_generation("earliest", now())


@pytest.fixture
def mirror(harness: Harness, kafka: Kafka, tmp_path: Path) -> Mirror:
    return Mirror(harness, kafka, tmp_path)


def customers() -> type[ManagedTable]:
    return declare(
        {
            "id": Annotated[BigInt, pk()],
            "name": Text,
            "credit": Numeric[10, 2] | None,
            "at": TimestampTZ | None,
            "tags": JSONB | None,
        }
    )


def row(number: int, name: str, **other: Any) -> dict[str, Any]:
    return {"id": number, "name": name, "credit": "1.50", "at": "2026-03-04T05:06:07.890Z", "tags": None, **other}


def names(harness: Harness, table: type[ManagedTable]) -> dict[int, str]:
    return {found["id"]: found["name"] for found in harness.rows(table.spec())}


@pytest.mark.slow
@pytest.mark.by_default("postgres")
def test_rows_follow_their_source_whatever_is_repeated_or_late(mirror: Mirror, harness: Harness) -> None:
    table = customers()
    change = mirror(
        table,
        debezium("r", row(1, "one"), at=0, lsn=10),
        debezium("c", row(2, "two"), at=1, lsn=20),
        debezium("c", row(3, "three"), at=2, lsn=30),
        debezium("u", row(2, "two, changed"), before=row(2, "two"), at=3, lsn=40),
        debezium("u", row(4, "never created", tags={"a": [1]}), at=4, lsn=50),
    )  # fmt: skip
    assert names(harness, table) == {1: "one", 2: "two, changed", 3: "three", 4: "never created"}
    fourth = next(found for found in harness.rows(table.spec()) if found["id"] == 4)
    assert (fourth["credit"], fourth["tags"]) == (Decimal("1.50"), {"a": [1]})
    assert fourth["at"] == datetime(2026, 3, 4, 5, 6, 7, 890_000, tzinfo=timezone.utc)
    assert (change.total_rows, mirror.figures()) == (5, {"creates": 3, "updates": 2})
    mirror(
        table,
        debezium("d", before={"id": 3}, at=10, lsn=60), tombstone({"id": 3}),
        debezium("u", row(1, "first of a moment"), at=11, lsn=70),
        debezium("u", row(1, "last of a moment", credit=None), at=11, lsn=71),
        debezium("u", row(2, "too late"), at=2, lsn=35),
    )  # fmt: skip
    assert names(harness, table) == {1: "last of a moment", 2: "two, changed", 4: "never created"}
    assert mirror.figures() == {"updates": 3, "deletes": 1, "skipped": 1, "idempotent_skipped": 1}
    mirror(
        table,
        debezium("u", row(1, "first of a moment"), at=11, lsn=70),
        debezium("c", row(3, "three"), at=2, lsn=30),
        debezium("u", row(4, "of the same moment"), at=4, lsn=51),
        debezium("d", before={"id": 2}, at=12, lsn=80),
        debezium("c", row(2, "again"), at=13, lsn=90),
    )  # fmt: skip
    assert names(harness, table) == {1: "last of a moment", 2: "again", 4: "of the same moment"}
    mirror.begin_anew()  # the whole log once more
    mirror(table)
    assert names(harness, table) == {1: "last of a moment", 2: "again", 4: "of the same moment"}


@pytest.mark.full
def test_deleted_rows_may_stay_and_live_again(mirror: Mirror, harness: Harness) -> None:
    table = customers()
    softly = CDC(delete_mode="soft", soft_delete_column="gone_at")

    def found() -> dict[int, tuple[str, datetime | None]]:
        spec = declare({"gone_at": TimestampTZ | None}).spec()
        rows = harness.canonical_rows(spec, harness.raw_rows(table.spec().schema, table.spec().name))
        return {int(one["id"]): (one["name"], one["gone_at"]) for one in rows}

    mirror(table, debezium("c", row(1, "one"), at=0), debezium("c", row(2, "two"), at=0), cdc=softly)
    mirror(table, debezium("d", before=row(1, "one"), at=5000), debezium("d", before={"id": 9}, at=5000), cdc=softly)
    assert found() == {1: ("one", BEGAN + timedelta(seconds=5)), 2: ("two", None)}
    mirror(table, debezium("u", row(1, "late"), at=4000), cdc=softly)
    assert found()[1] == ("one", BEGAN + timedelta(seconds=5))
    mirror(table, debezium("c", row(1, "again"), at=6000), cdc=softly)
    assert found()[1] == ("again", None)


@pytest.mark.by_default("sqlite")
def test_a_key_may_have_several_columns_and_move(mirror: Mirror, harness: Harness) -> None:
    table = declare({"shop": Annotated[Text, pk()], "number": Annotated[BigInt, pk()], "total": BigInt | None})
    words = CDC(envelope="maxwell", op_map={"upsert": "u"})

    def order(shop: str, number: int, total: int | None) -> dict[str, Any]:
        return {"shop": shop, "number": number, "total": total}

    mirror(
        table,
        maxwell("insert", order("a", 1, 1)), maxwell("insert", order("a", 2, 2)), maxwell("insert", order("b", 1, 3)),
        maxwell("update", order("a", 1, 10), old={"total": 1}), maxwell("upsert", order("c", 1, 5), at=1),
        maxwell("table-alter", {}), cdc=words,
    )  # fmt: skip
    mirror(
        table,
        maxwell("update", order("b", 7, 3), old={"number": 1}, at=2), maxwell("delete", order("a", 2, 2), at=2), cdc=words,
    )  # fmt: skip
    found = {(one["shop"], one["number"]): one["total"] for one in harness.rows(table.spec())}
    assert found == {("a", 1): 10, ("b", 7): 3, ("c", 1): 5}


@pytest.mark.full
def test_bad_messages_are_dead_letters_and_columns_that_are_unknown_stay_out(
    mirror: Mirror, harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    table = customers()
    bad: list[Message] = [
        {"value": b"no json"}, {"value": b'{"hello": 1}'}, debezium("u"), debezium("c", {"name": "nobody"}, key={"no": 1}),
        debezium("c", row(5, "x", credit="much")), debezium("c", {"id": 6}),
    ]  # fmt: skip
    with caplog.at_level(logging.WARNING):
        change = mirror(
            table, debezium("c", row(1, "one", new="column")), *bad, debezium("t"), tombstone({"id": 1}),
            debezium("d", key={"id": 1}), debezium("c", row(2, "two")), transform_on_error="dlq",
        )  # fmt: skip
    assert names(harness, table) == {2: "two"}
    mine = mirror.letters()
    assert [stage for stage, _ in mine] == ["transform"] * 3 + ["write"] * 3
    assert "has no 'op'" in mine[0][1] + mine[1][1] + mine[2][1]
    assert change.total_rows == 11
    assert [text for text in caplog.messages if "new" in text and "left out" in text]
    assert [text for text in caplog.messages if "'t'" in text]
    with pytest.raises(DriftError, match="has no column new"):
        mirror(table, debezium("c", row(3, "three", new="column")), cdc=CDC(schema_evolution="fail"))
    with pytest.raises(BadValue, match="is not a JSON object"):
        mirror(
            declare({"id": Annotated[BigInt, pk()]}), name=unique("strict"), checkpoint=str(mirror.folder / "strict")
        )


@pytest.mark.by_default("sqlite")
def test_the_first_rows_make_a_table_and_later_ones_keep_to_it(mirror: Mirror, harness: Harness) -> None:
    place = (unique("s"), unique("t"))
    mirror(place, debezium("c", {"id": 1, "name": "one", "share": 0.5}), target_primary_key=["id"])
    mirror(
        place, debezium("u", {"id": 1, "name": "changed", "share": None, "more": 1}, at=1),
        debezium("c", {"id": 2, "name": None, "share": 2}), target_primary_key=["id"],
    )  # fmt: skip
    rows = harness.raw_rows(*place)
    assert {int(one["id"]): (one["name"], one["share"]) for one in rows} == {1: ("changed", None), 2: (None, 2.0)}
    assert set(rows[0]) == {"id", "name", "share"}
    mirror(place, debezium("d", before={"id": 1}, at=2), target_primary_key=["id"])
    assert [int(one["id"]) for one in harness.raw_rows(*place)] == [2]


@pytest.mark.full
def test_connects_schema_says_what_a_number_means(mirror: Mirror, harness: Harness) -> None:
    table = declare(
        {
            "id": Annotated[BigInt, pk()], "born": Date | None, "seen": Timestamp | None, "made": TimestampTZ | None,
            "price": Numeric[38, 4] | None, "any": Numeric[20, 3] | None, "data": Bytes | None, "raw": BigInt | None,
        }
    )  # fmt: skip
    micros = {"type": "int64", "name": "io.debezium.time.MicroTimestamp"}
    decimal = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal"}
    schema = connect_schema(
        id={"type": "int64"}, born={"type": "int32", "name": "io.debezium.time.Date"}, seen=micros, raw=micros,
        made={"type": "string", "name": "io.debezium.time.ZonedTimestamp"},
        price={**decimal, "parameters": {"scale": "4", "connect.decimal.precision": "38"}},
        any={"type": "struct", "name": "io.debezium.data.VariableScaleDecimal"}, data={"type": "bytes"},
    )  # fmt: skip

    def change(number: int, price: str, unscaled: bytes) -> Message:
        import base64

        after = {
            "id": number, "born": 20_000, "seen": 1_700_000_000_123_456, "raw": 1_700_000_000_123_456,
            "made": "2026-01-02T03:04:05.678901Z", "price": base64.b64encode(unscaled).decode(),
            "any": {"scale": 3, "value": "BNI="}, "data": "AAEC/w==",
        }  # fmt: skip
        prices[number] = Decimal(price)
        return debezium("c", after, schema=schema)

    prices: dict[int, Decimal] = {}
    largest = 10**38 - 1
    mirror(
        table,
        change(1, "1.2345", (12345).to_bytes(2, "big")),
        change(2, "-1.2345", (-12345).to_bytes(2, "big", signed=True)),
        change(3, f"{largest // 10_000}.9999", largest.to_bytes(16, "big")),
        change(4, f"-{largest // 10_000}.9999", (-largest).to_bytes(16, "big", signed=True)),
        change(5, "-0.0001", b"\xff"), change(6, "0", b"\x00"), change(7, str(Decimal(2**56) / 10_000), (2**56).to_bytes(8, "big")),
    )  # fmt: skip
    rows = {found["id"]: found for found in harness.rows(table.spec())}
    assert {number: found["price"] for number, found in rows.items()} == prices
    first = rows[1]
    assert (first["born"], first["any"], first["data"]) == (date(2024, 10, 4), Decimal("1.234"), b"\x00\x01\x02\xff")
    assert first["seen"] == datetime(2023, 11, 14, 22, 13, 20, 123_456)
    assert first["made"] == datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=timezone.utc)
    assert first["raw"] == 1_700_000_000_123_456
    with pytest.raises(BadValue, match="a number without its unit"):
        mirror(table, debezium("c", {"id": 8, "seen": 1_700_000_000_123}))


@pytest.mark.systems("sqlite")
def test_an_envelope_may_be_of_any_shape(mirror: Mirror, harness: Harness) -> None:
    table = declare({"id": Annotated[BigInt, pk()], "name": Text | None})
    shape = CDC(
        envelope="custom", op_field="meta.action", after_field="data.new", before_field="data.old", key_field="meta.pk",
        ts_field="meta.when", op_map={"INSERT": "c", "REMOVE": "d"},
    )  # fmt: skip

    def change(action: str, new: Any, pk: int, when: Any) -> Message:
        event = {"meta": {"action": action, "pk": pk, "when": when}, "data": {"new": new}}
        return {"value": json.dumps(event).encode()}

    mirror(
        table, change("INSERT", {"name": "one"}, 1, 1_760_000_000), change("INSERT", {"id": 2, "name": "two"}, 2, None), cdc=shape
    )  # fmt: skip
    assert names(harness, table) == {1: "one", 2: "two"}
    mirror(
        table, change("REMOVE", None, 2, None), change("INSERT", {"name": "late"}, 1, 1_759_999_999_999),
        change("INSERT", {"name": "three"}, 3, "2026-01-01T00:00:00Z"), cdc=shape,
    )  # fmt: skip
    assert names(harness, table) == {1: "one", 3: "three"}


@pytest.mark.full
@pytest.mark.systems("sqlite")
def test_what_a_snapshot_saw_does_not_keep_out_the_changes_after_it(mirror: Mirror, harness: Harness) -> None:
    table = customers()
    mirror(table, debezium("r", row(1, "seen"), at=1000), debezium("r", row(2, "seen"), at=1000))
    mirror(table, debezium("u", row(1, "changed while others were read"), at=500))
    mirror(table, debezium("r", row(3, "seen"), at=1000), debezium("u", row(3, "changed meanwhile"), at=500))
    found = {1: "changed while others were read", 2: "seen", 3: "changed meanwhile"}
    assert names(harness, table) == found
    mirror.begin_anew()
    mirror(table)
    assert names(harness, table) == found


@pytest.mark.full
@pytest.mark.systems("sqlite")
def test_changes_that_have_a_schema_of_their_own_are_the_same(harness: Harness, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = declare(
        {"id": Annotated[BigInt, pk()], "price": Numeric[10, 2] | None, "at": TimestampTZ | None, "data": Bytes | None}
    )
    image = pa.struct(
        [("id", pa.int64()), ("price", pa.decimal128(10, 2)), ("at", pa.timestamp("us", "UTC")), ("data", pa.binary())]
    )
    source = pa.struct([("ts_ms", pa.int64()), ("lsn", pa.int64())])
    schema = pa.schema([("op", pa.string()), ("before", image), ("after", image), ("source", source)])
    one = {"id": 1, "price": Decimal("1.10"), "at": BEGAN, "data": b"\x00\xff"}
    events = [
        {"op": "c", "before": None, "after": one, "source": {"ts_ms": T0, "lsn": 1}},
        {"op": "u", "before": one, "after": {**one, "price": Decimal("2.20")}, "source": {"ts_ms": T0, "lsn": 2}},
        {"op": "c", "before": None, "after": {**one, "id": 2}, "source": {"ts_ms": T0, "lsn": 3}},
        {"op": "d", "before": {**one, "id": 2}, "after": None, "source": {"ts_ms": T0 + 1, "lsn": 4}},
    ]
    folder = tmp_path / "in" / "changes"
    folder.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(events, schema), folder / "first.parquet")
    run_streaming_pipeline(
        name=unique("written"), source=ObjectStoreLocalConnection(name="in", path=str(tmp_path / "in"), format="parquet"),
        source_query="changes", target=table, target_connection=harness.connection, cdc=CDC(), once=True,
        checkpoint=str(tmp_path / "checkpoint"),
    )  # fmt: skip
    rows = [{name: found[name] for name in one} for found in harness.rows(table.spec())]
    assert rows == [{**one, "price": Decimal("2.20")}]
