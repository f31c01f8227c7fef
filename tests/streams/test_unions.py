"""Several sources without a join: one stream of all their rows, whatever system each of them is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ematix_flow import Aggregation, KafkaConnection, RabbitMQConnection, Source, Window
from ematix_flow.foundation.errors import PlanError
from ematix_flow.run_log.sqlite import SqliteRunLog
from ematix_flow.streaming.dlq import service
from ematix_flow.streaming.dlq.dead_letter import LetterSelection
from tests.services.kafka import Kafka
from tests.streams.kafka_topics import group_offsets, new_topic, send
from tests.streams.operated import declared, rows, run, shop
from tests.streams.rabbit_queues import depth, new_queue, publish
from tests.streams.test_stateful import NEVER, Incoming, events

pytestmark = pytest.mark.usefixtures("every_jar", "homes")
ALL = LetterSelection()


def given(**fields: Any) -> dict[str, Any]:
    """A message."""
    return {"value": json.dumps(fields)}


def orders(folder: Path, *sources: Source, **options: Any) -> Any:
    """One table of all orders."""
    return declared(
        name="orders", sources=list(sources), target=shop(folder), target_table=("main", "orders"), **options
    )


def broker(kafka: Kafka, name: str) -> KafkaConnection:
    """A connection of its own to the same server."""
    return KafkaConnection(name, bootstrap_servers=kafka.open, group_id=f"{name}-{id(kafka)}")


@pytest.mark.slow
def test_rows_of_a_topic_and_of_a_folder_are_one_stream(kafka: Kafka, tmp_path: Path) -> None:
    topic, incoming = new_topic(kafka), Incoming(tmp_path)
    spec = orders(tmp_path, Source(broker(kafka, f"shops_{topic}"), topic), Source(incoming.connection, "late"))
    send(kafka, topic, [given(id=1, amount=5)])
    incoming.arrive([{"ID": 4, "city": "Oslo", "amount": 7.5}], "late")
    run(spec)
    assert rows(tmp_path, "SELECT id, amount, city FROM orders") == [(1, 5.0, None), (4, 7.5, "Oslo")]


@pytest.mark.full("three starts over three systems; two systems are one stream by default")
def test_rows_of_every_source_arrive_once_with_the_columns_of_all(
    kafka: Kafka, rabbitmq_url: str, tmp_path: Path, run_log: SqliteRunLog
) -> None:
    topic, queue, incoming = new_topic(kafka), new_queue(rabbitmq_url), Incoming(tmp_path)
    shops = broker(kafka, f"shops_{topic}")
    spec = orders(
        tmp_path,
        Source(shops, topic),
        Source(RabbitMQConnection("web", amqp_url=rabbitmq_url), queue),
        Source(incoming.connection, "late"),
    )
    send(kafka, topic, [given(id=1, amount=5), given(id=2, amount=6)])
    publish(rabbitmq_url, queue, [json.dumps({"id": 3, "city": "Rome", "amount": 7.5})])
    incoming.arrive([{"ID": 4, "city": "Oslo"}], "late")
    run(spec, run_log)
    told = "SELECT id, amount, city FROM orders"
    assert rows(tmp_path, told) == [(1, 5.0, None), (2, 6.0, None), (3, 7.5, "Rome"), (4, None, "Oslo")]
    publish(rabbitmq_url, queue, [json.dumps({"id": 5, "city": "Bern"})])
    send(kafka, topic, [given(id=6)])
    run(spec, run_log)
    run(spec, run_log)
    assert [one for (one,) in rows(tmp_path, "SELECT id FROM orders")] == [1, 2, 3, 4, 5, 6]
    assert (depth(rabbitmq_url, queue), group_offsets(kafka, str(shops.group_id))) == (0, {f"{topic}-0": 3})
    last = run_log.list_runs(pipeline="orders", limit=3)[0]
    assert sum(record.extras["rows_consumed_total"] for record in last) == 6


@pytest.mark.full("a stream and a replay of its letters, each with sources of their own")
def test_letters_of_two_places_that_are_alike_stay_apart_and_are_replayed_by_their_own_source(
    kafka: Kafka, tmp_path: Path
) -> None:
    topic, other = new_topic(kafka), new_topic(kafka)
    send(kafka, topic, [{"value": b"{"}, given(id=1, amount="one"), given(id=1, amount="2")])
    send(kafka, other, [given(id=9, city="Rome", amount="3")])
    west, east = broker(kafka, f"west_{topic}"), broker(kafka, f"east_{topic}")  # the same places under two names
    both = (Source(west, topic), Source(east, topic), Source(east, other))
    strict = "SELECT id, CAST(amount AS INT) AS amount, city FROM source"
    spec = orders(tmp_path, *both, transform_sql=strict, transform_on_error="dlq", dlq_store="table")
    run(spec)
    told = "SELECT id, coalesce(amount, -1), coalesce(city, '') FROM orders"
    assert rows(tmp_path, told) == [(1, 2, ""), (1, 2, ""), (9, 3, "Rome")]
    found = [(letter.stage, letter.place.get("origin")) for letter in service.list_letters(spec)]
    assert sorted(found, key=str) == [("decode", 1), ("decode", None), ("transform", 1), ("transform", None)]
    healed = orders(tmp_path, *both, transform_sql=strict.replace("CAST", "try_cast"), transform_on_error="dlq",
                    dlq_store="table")  # fmt: skip
    report = service.replay_letters(healed, ALL)
    assert report.to_dict() == {"taken": 4, "succeeded": 2, "redeadlettered": 2, "parked": 0}
    assert rows(tmp_path, told)[:2] == [(1, -1, ""), (1, -1, "")]
    assert {(letter.stage, letter.attempt) for letter in service.list_letters(healed)} == {("decode", 2)}


def test_the_last_message_of_a_key_is_found_within_each_source(kafka: Kafka, tmp_path: Path) -> None:
    topic = new_topic(kafka)
    connections = [broker(kafka, f"{side}_{topic}") for side in ("west", "east")]
    spec = orders(tmp_path, *(Source(item, topic) for item in connections), mode="merge", keys=["id"])
    send(kafka, topic, [given(id=1, n=1), given(id=2, n=1), given(id=1, n=2)])
    run(spec)
    assert rows(tmp_path, "SELECT id, n FROM orders") == [(1, 2), (2, 1)]


@pytest.mark.full("a window costs several folds; the union itself is shown by the tests above")
def test_a_window_waits_for_the_slowest_source(tmp_path: Path) -> None:
    incoming = Incoming(tmp_path)
    spec = orders(
        tmp_path, Source(incoming.connection, "shops"), Source(incoming.connection, "web"), watermark=NEVER,
        window=Window(kind="tumbling", duration_ms=60_000, group_by=("user_id",),
                      aggregations=[Aggregation(agg="count", as_="n")]),
        transform_sql="SELECT lower(user_id) AS user_id, _event_ts FROM source",
    )  # fmt: skip
    incoming.arrive(events(("Ana", 1), ("ana", 70)), "shops")
    incoming.arrive(events(("ana", 2)), "web")
    run(spec)
    assert not rows(tmp_path, "SELECT name FROM sqlite_master WHERE name = 'orders'")
    incoming.arrive(events(("ana", 65)), "web")
    run(spec)
    assert rows(tmp_path, "SELECT user_id, n FROM orders") == [("ana", 2)]


def test_a_checkpoint_of_other_sources_is_refused_with_the_way_on(tmp_path: Path) -> None:
    incoming = Incoming(tmp_path)
    one, other = Source(incoming.connection, "shops"), Source(incoming.connection, "web")
    for name in ("shops", "web"):
        incoming.arrive([{"id": 1}], name)
    run(orders(tmp_path, one))
    with pytest.raises(PlanError, match=r"reads 2 source\(s\), and its checkpoint was made with 1") as caught:
        run(orders(tmp_path, one, other))
    assert "flow stream rewind orders --to earliest" in str(caught.value.hint)
