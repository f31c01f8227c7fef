"""Samples of the product's documents beyond SQL run as printed, with Kafka, and PostgreSQL for rows and state."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from typing import Annotated, Any

import pytest

import ematix_flow
from ematix_flow import BigInt, Text, ematix, pk
from tests.e2e import documents
from tests.e2e.documents import early
from tests.e2e.names import (
    CHANGES,
    EARLY_JOINS,
    EARLY_SESSIONS,
    EARLY_WINDOWS,
    JOINS,
    SESSIONS,
    STATE,
    TYPED,
    WINDOWS,
)  # fmt: skip
from tests.e2e.samples import Database, Page
from tests.e2e.streaming import fill, has, stopped
from tests.services.kafka import Kafka

DOCUMENT, FIRST = documents.NEWER, documents.FIRST
NAMES = {name: getattr(ematix_flow, name) for name in ("Window", "Aggregation", "StateStore", "run_streaming_pipeline")}
NAMES |= {name: getattr(ematix_flow, name) for name in ("KafkaConnection", "PostgresConnection")}
DOCUMENTS = [DOCUMENT, pytest.param(FIRST, marks=pytest.mark.full("the other document prints the same stream"))]
JARS = {"delta", "kafka", "avro", "s3a"}
IN_THE_FIRST = {WINDOWS: EARLY_WINDOWS, SESSIONS: EARLY_SESSIONS, JOINS: EARLY_JOINS}


@ematix.table(schema="public")
class CustomerMirror:
    """The target of the change data."""

    id: Annotated[BigInt, pk()]
    name: Text | None


def minutes(*given: tuple[int, str, float]) -> list[bytes]:
    """Rides of a rider to a stop, so many minutes after noon."""
    noon = datetime(2026, 3, 2, 12, tzinfo=timezone.utc)
    return [
        json.dumps({"rider_id": user, "stop": stop, "_event_ts": (noon + timedelta(minutes=late)).isoformat()}).encode()
        for user, stop, late in given
    ]


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("document", DOCUMENTS)
def test_events_are_counted_by_the_minute(reader: Page, database: Database, kafka: Kafka, document: str) -> None:
    fill(kafka, "rides", minutes((7, "/a", 0.1), (7, "/b", 0.9), (8, "/a", 0.5), (7, "/c", 1.2)))
    with stopped(has(database, "public.rides_by_minute", 2)):
        run_sample(reader, document, WINDOWS)
    told = "SELECT rider_id, to_char(window_start AT TIME ZONE 'UTC', 'HH24:MI'), how_many FROM public.rides_by_minute ORDER BY 1"
    assert database.rows(told) == [(7, "12:00", 2), (8, "12:00", 1)]


@pytest.mark.full
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_session_ends_after_five_quiet_minutes(reader: Page, database: Database, kafka: Kafka, document: str) -> None:
    fill(kafka, "rides", minutes((7, "/start", 0), (7, "/cart", 4), (7, "/pay", 8), (8, "/start", 1), (9, "/late", 14)))
    with stopped(has(database, "public.outings", 2)):
        run_sample(reader, document, SESSIONS)
    told = "SELECT rider_id, stops_seen, first_stop, last_stop FROM public.outings ORDER BY 1"
    assert database.rows(told) == [(7, 3, "/start", "/pay"), (8, 1, "/start", "/start")]
    assert database.rows("SELECT count(*) > 0 FROM public.ematix_streaming_state") == [(True,)]


@pytest.mark.full
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("document", DOCUMENTS)
def test_orders_meet_their_payments(reader: Page, database: Database, kafka: Kafka, document: str) -> None:
    fill(kafka, "pickups", [b'{"trip_id": 1, "item": "tea"}', b'{"trip_id": 2, "item": "cup"}'])
    fill(kafka, "dropoffs", [b'{"trip_id": 2, "amount": 5}', b'{"trip_id": 3, "amount": 9}'])
    with stopped(has(database, "public.trips", 1)):
        run_sample(reader, document, JOINS)
    told = "SELECT left_trip_id, left_item, right_amount FROM public.trips"
    assert database.rows(told) == [(2, "cup", 5)]


def run_sample(reader: Page, document: str, name: str) -> None:
    """Run a sample of the newer document, or the one of the first document that shows the same."""
    reader.run(TYPED, **NAMES)
    if document == DOCUMENT:
        reader.run(name)
    else:
        reader.run_sample(early(IN_THE_FIRST[name]))


MIRRORED = [
    ("c", None, {"id": 1, "name": "Ada"}), ("c", None, {"id": 2, "name": "Blaise"}), ("r", None, {"id": 3, "name": "Carl"}),
    ("u", {"id": 2, "name": "Blaise"}, {"id": 2, "name": "Pascal"}), ("d", {"id": 3, "name": "Carl"}, None),
]  # fmt: skip


@pytest.mark.full
@pytest.mark.usefixtures("spark")
def test_change_data_is_applied_as_printed(reader: Page, kafka: Kafka, database: Database) -> None:
    source = {"connector": "postgresql", "ts_ms": 1_794_767_172_657, "schema": "public", "table": "customers"}
    told = [
        {"before": before, "after": after, "source": {**source, "lsn": number}, "op": op}
        for number, (op, before, after) in enumerate(MIRRORED)
    ]
    fill(kafka, "office.public.members", [json.dumps(one).encode() for one in told])
    reader.run(TYPED)
    found = reader.run(CHANGES, member_copy=CustomerMirror)
    assert found.copy_members.spec.targets[0].mode == "merge"
    with stopped(has(database, "public.customer_mirror", 2)):
        found.copy_members()
    assert database.rows("SELECT id, name FROM public.customer_mirror ORDER BY id") == [(1, "Ada"), (2, "Pascal")]
    seen = database.rows("SELECT pk_json, last_seen_ts_ms FROM ematix_flow.cdc_idempotency ORDER BY 1")
    assert seen == [(f'{{"id":{number}}}', 1_794_767_172_657) for number in (1, 2, 3)]


@pytest.mark.full
def test_a_state_store_is_a_value(page: Page) -> None:
    made: list[Any] = []
    interval = page.samples[STATE].keyword("checkpoint_interval_ms")
    page.run(STATE, StateStore=lambda **said: made.append(ematix_flow.StateStore(**said)))
    assert (made[0].kind, made[0].checkpoint_interval_ms) == ("postgres", interval)
