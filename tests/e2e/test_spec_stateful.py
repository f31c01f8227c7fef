"""Samples of the product's documents beyond SQL: change data is applied as printed, and what needs state is declared."""

from __future__ import annotations

import json
from typing import Annotated, Any

import pytest

import ematix_flow
from ematix_flow import BigInt, Text, ematix, pk
from ematix_flow.foundation.errors import Unsupported
from tests.e2e import documents
from tests.e2e.names import CHANGES, JOINS, SESSIONS, STATE, TYPED, WINDOWS
from tests.e2e.samples import Database, Page
from tests.e2e.streaming import CLEAN, fill, has, stopped
from tests.services.kafka import Kafka

DOCUMENT, FIRST = "readme-0.3.0.txt", "readme-0.1.2.txt"
pytestmark = pytest.mark.skipif(not (documents.FOLDER / DOCUMENT).is_file(), reason=documents.MISSING)
NAMES = {name: getattr(ematix_flow, name) for name in ("Window", "Aggregation", "StateStore", "run_streaming_pipeline")}
NAMES |= {name: getattr(ematix_flow, name) for name in ("KafkaConnection", "PostgresConnection")}


@ematix.table(schema="public")
class CustomerMirror:
    """The target of the change data."""

    id: Annotated[BigInt, pk()]
    name: Text | None


@pytest.mark.parametrize(("sample", "word"), [(WINDOWS, "window"), (SESSIONS, "window"), (JOINS, "join")])
def test_what_needs_state_is_declared_and_refused(page: Page, sample: str, word: str) -> None:
    page.run(TYPED, **NAMES)
    with pytest.raises(Unsupported, match=f"{word}= cannot be run yet"):
        page.run(sample)


@pytest.mark.parametrize(
    ("after", "first", "word"),
    [
        ("Tumbling window aggregation (count events per user per minute):", "from ematix_flow import (", "window"),
        ("Session window (per-user activity sessions, 5-minute idle gap):",
         "from ematix_flow import StateStore # new in 39.5a", "window"),
        ("Driven from typed Python via sources=[Source(...)]:", "from ematix_flow import Join, Source", "join"),
    ],
)  # fmt: skip
def test_what_needs_state_in_the_first_document_is_declared_and_refused(
    page: Page, after: str, first: str, word: str
) -> None:
    page.run(**NAMES)
    sample = documents.unindented(FIRST, after=after, first=first)
    with pytest.raises(Unsupported, match=f"{word}= cannot be run yet"):
        page.run_sample(sample)


MIRRORED = [
    ("c", None, {"id": 1, "name": "Ada"}), ("c", None, {"id": 2, "name": "Blaise"}), ("r", None, {"id": 3, "name": "Carl"}),
    ("u", {"id": 2, "name": "Blaise"}, {"id": 2, "name": "Pascal"}), ("d", {"id": 3, "name": "Carl"}, None),
]  # fmt: skip


@pytest.mark.usefixtures("spark")
def test_change_data_is_applied_as_printed(
    page: Page, kafka: Kafka, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.run(CLEAN)
    monkeypatch.setenv("KAFKA_BOOTSTRAP", kafka.open)
    page.values |= {"localhost:9092": kafka.open, "postgres://localhost/wh": database.url}
    source = {"connector": "postgresql", "ts_ms": 1_794_767_172_657, "schema": "public", "table": "customers"}
    told = [
        {"before": before, "after": after, "source": {**source, "lsn": number}, "op": op}
        for number, (op, before, after) in enumerate(MIRRORED)
    ]
    fill(kafka, "dbserver1.public.customers", [json.dumps(one).encode() for one in told])
    page.run(TYPED)
    found = page.run(CHANGES, customer_mirror=CustomerMirror)
    assert found.mirror_customers.spec.targets[0].mode == "merge"
    with stopped(has(database, "public.customer_mirror", 2)):
        found.mirror_customers()
    assert database.rows("SELECT id, name FROM public.customer_mirror ORDER BY id") == [(1, "Ada"), (2, "Pascal")]
    seen = database.rows("SELECT pk_json, last_seen_ts_ms FROM ematix_flow.cdc_idempotency ORDER BY 1")
    assert seen == [(f'{{"id":{number}}}', 1_794_767_172_657) for number in (1, 2, 3)]


def test_a_state_store_is_a_value(page: Page) -> None:
    made: list[Any] = []
    page.run(STATE, StateStore=lambda **said: made.append(ematix_flow.StateStore(**said)))
    assert (made[0].kind, made[0].checkpoint_interval_ms) == ("postgres", 60_000)
