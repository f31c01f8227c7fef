"""A stream from Kafka into every system with tables: exactly once, in its types, and on where it stopped."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from shutil import copytree, rmtree
from typing import Any

import pytest

from ematix_flow import (
    JSONB,
    Annotated,
    BigInt,
    Integer,
    KafkaConnection,
    ManagedTable,
    Numeric,
    Text,
    TimestampTZ,
    pk,
    run_streaming_pipeline,
)
from ematix_flow.foundation.clock import now
from ematix_flow.foundation.errors import LeaseLost, PlanError
from ematix_flow.streaming.runtime.checkpoint_folder import CheckpointFolder
from tests.contract.loading import declare, unique
from tests.harness.base import Harness
from tests.services.kafka import Kafka
from tests.streams.kafka_topics import group_offsets, new_topic, send

pytestmark = pytest.mark.embedded("a stream's driver is its own process")

Stream = Callable[..., Any]


@pytest.fixture
def topic(kafka: Kafka) -> str:
    return new_topic(kafka, partitions=2)


@pytest.fixture
def stream(harness: Harness, kafka: Kafka, topic: str, tmp_path: Path) -> Stream:
    """Drains the topic into the system, and says how it went."""
    name = unique("stream")

    def run(target: type[ManagedTable] | None = None, **options: Any) -> Any:
        source = KafkaConnection(name="events", bootstrap_servers=kafka.open, group_id=name)
        if target is not None:
            options |= {"target": target, "target_connection": harness.connection}
        else:
            options |= {"target": harness.connection}
        always = {"name": name, "source": source, "source_query": topic, "checkpoint": str(tmp_path / "checkpoint")}
        return run_streaming_pipeline(once=True, **{**always, **options})

    return run


def publish(kafka: Kafka, topic: str, documents: Iterable[dict[str, Any]]) -> None:
    """Documents as messages; those with an id go by it to their partition."""
    send(
        kafka, topic, [{"value": json.dumps(item).encode(), "key": str(item.get("id")).encode()} for item in documents]
    )


def orders() -> type[ManagedTable]:
    return declare(
        {
            "id": Annotated[BigInt, pk()],
            "customer": Text | None,
            "amount": Numeric[10, 2] | None,
            "at": TimestampTZ | None,
            "lines": JSONB | None,
        }
    )


def document(number: int, **other: Any) -> dict[str, Any]:
    return {
        "id": number,
        "customer": f"c{number}",
        "amount": f"{number}.25",
        "at": "2026-03-04T05:06:07.890Z",
        "lines": [{"sku": "a", "n": number}],
        **other,
    }


@pytest.mark.by_default("postgres", "delta")
@pytest.mark.offers("append")
def test_every_message_is_a_row_once_and_the_next_start_goes_on(
    harness: Harness, kafka: Kafka, topic: str, stream: Stream
) -> None:
    table = orders()
    publish(kafka, topic, map(document, range(5)))
    assert stream(table, mode="append").total_rows == 5
    assert stream(table, mode="append").total_rows == 0
    publish(kafka, topic, map(document, range(5, 8)))
    assert stream(table, mode="append").total_rows == 3
    rows = harness.rows(table.spec())
    assert sorted(row["id"] for row in rows) == list(range(8))
    third = next(row for row in rows if row["id"] == 3)
    assert third["amount"] == Decimal("3.25")
    assert third["at"] == datetime(2026, 3, 4, 5, 6, 7, 890_000, tzinfo=timezone.utc)
    assert third["lines"] == [{"sku": "a", "n": 3}]


@pytest.mark.by_default("postgres")
@pytest.mark.offers("merge")
def test_the_last_message_about_a_key_counts(harness: Harness, kafka: Kafka, topic: str, stream: Stream) -> None:
    table = orders()
    publish(kafka, topic, [document(1), document(2), document(1, customer="later"), document(1, customer="last")])
    stream(table, mode="merge")
    publish(kafka, topic, [document(2, customer="changed"), document(3)])
    stream(table, mode="merge")
    found = {row["id"]: row["customer"] for row in harness.rows(table.spec())}
    assert found == {1: "last", 2: "changed", 3: "c3"}
    skewed = [("ahead", 2_000_000_000_000), ("behind", 1_000_000_000_000)]  # clocks of two senders
    send(
        kafka, topic,
        [{"value": json.dumps(document(1, customer=who)).encode(), "key": b"1", "timestamp": at} for who, at in skewed],
    )  # fmt: skip
    stream(table, mode="merge")
    assert {row["id"]: row["customer"] for row in harness.rows(table.spec())}[1] == "behind"


@pytest.mark.full
@pytest.mark.offers("merge")
def test_a_table_may_hold_keys_alone(harness: Harness, kafka: Kafka, topic: str, stream: Stream) -> None:
    schema, name = unique("s"), unique("t")
    for ids in ((1, 2, 1), (2, 3)):
        publish(kafka, topic, [{"id": number} for number in ids])
        stream(target_table=(schema, name), mode="merge", keys=["id"])
    assert sorted(int(row["id"]) for row in harness.raw_rows(schema, name)) == [1, 2, 3]


@pytest.mark.by_default("files-parquet")
@pytest.mark.offers("append")
def test_a_table_that_is_not_declared_follows_the_messages(
    harness: Harness, kafka: Kafka, topic: str, stream: Stream
) -> None:
    schema, name = unique("s"), unique("t")
    place = (
        {"target_prefix": f"{schema}/{name}"}
        if harness.backend.startswith("files")
        else {"target_table": (schema, name)}
    )
    publish(kafka, topic, [{"id": 1, "name": "one"}, {"id": 2, "name": None}])
    stream(**place)
    publish(kafka, topic, [{"id": 3, "name": "three", "price": 1.5}])
    stream(**place)
    found = {int(row["id"]): (row["name"] or None, row.get("price")) for row in harness.raw_rows(schema, name)}
    assert {key: (text, float(price) if price not in (None, "") else None) for key, (text, price) in found.items()} == {
        1: ("one", None), 2: (None, None), 3: ("three", 1.5),
    }  # fmt: skip


@pytest.mark.by_default("sqlite")
@pytest.mark.offers("scd2")
def test_versions_are_kept_of_what_messages_tell(harness: Harness, kafka: Kafka, topic: str, stream: Stream) -> None:
    table = declare({"id": Annotated[BigInt, pk()], "level": Integer | None})
    publish(kafka, topic, [{"id": 1, "level": 1}, {"id": 2, "level": 1}])
    stream(table, mode="scd2")
    publish(kafka, topic, [{"id": 1, "level": 2}, {"id": 2, "level": 1}])
    stream(table, mode="scd2")
    found = sorted((row["id"], row["level"], bool(row["is_current"])) for row in harness.rows(table.spec()))
    assert found == [(1, 1, False), (1, 2, True), (2, 1, True)]


@pytest.mark.systems("sqlite")
def test_tools_see_what_was_read(harness: Harness, kafka: Kafka, topic: str, stream: Stream) -> None:
    publish(kafka, topic, map(document, range(20)))
    name = unique("group")
    stream(orders(), name=name, mode="append", source=KafkaConnection("e", bootstrap_servers=kafka.open, group_id=name))
    assert sum(group_offsets(kafka, name).values()) == 20


# What is not a stream's turn any more ----------------------------------------------------------------------------------


def put(this: Path, there: Path) -> None:
    """A copy of a folder in the place of another."""
    rmtree(there, ignore_errors=True)
    copytree(this, there)


def numbers() -> type[ManagedTable]:
    return declare({"n": BigInt})


@pytest.mark.by_default("sqlite")
def test_a_generation_that_was_left_behind_writes_nothing_any_more(
    stream: Stream, harness: Harness, kafka: Kafka, topic: str, tmp_path: Path
) -> None:
    table, here, old = numbers(), tmp_path / "checkpoint", tmp_path / "old"
    publish(kafka, topic, [{"n": 1}])
    stream(table, mode="append")
    put(here, old)  # what a runner knows that is asleep
    CheckpointFolder(here).start_new_generation("earliest", now())
    publish(kafka, topic, [{"n": 2}])
    stream(table, mode="append")
    assert sorted(row["n"] for row in harness.rows(table.spec())) == [1, 1, 2]
    put(old, here)  # it wakes up
    with pytest.raises(LeaseLost, match="begun anew"):
        stream(table, mode="append")
    assert sorted(row["n"] for row in harness.rows(table.spec())) == [1, 1, 2]


@pytest.mark.by_default("sqlite")
def test_a_checkpoint_that_is_older_than_its_target_is_refused_and_no_row_is_lost_in_silence(
    stream: Stream, harness: Harness, kafka: Kafka, topic: str, tmp_path: Path
) -> None:
    table, here, old = numbers(), tmp_path / "checkpoint", tmp_path / "old"
    publish(kafka, topic, [{"n": 1}])
    stream(table, mode="append")
    put(here, old)
    publish(kafka, topic, [{"n": 2}])
    stream(table, mode="append")
    put(here, newest := tmp_path / "newest")
    put(old, here)
    publish(kafka, topic, [{"n": 3}])
    with pytest.raises(PlanError, match="older than the target"):
        stream(table, mode="append")
    rmtree(here / "spark")
    with pytest.raises(PlanError, match="older than the target"):
        stream(table, mode="append")
    put(newest, here)
    stream(table, mode="append")
    assert sorted(row["n"] for row in harness.rows(table.spec())) == [1, 2, 3]
