"""Samples of the product's documents that need state: declared as printed, and running them is refused with a sentence."""

from __future__ import annotations

from typing import Annotated, Any

import pytest

import ematix_flow
from ematix_flow import BigInt, Text, ematix, pk
from ematix_flow.foundation.errors import Unsupported
from tests.e2e import documents
from tests.e2e.names import CHANGES, JOINS, SESSIONS, STATE, TYPED, WINDOWS
from tests.e2e.samples import Page

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


def test_change_data_is_declared_and_refused(page: Page) -> None:
    found = page.run(TYPED)
    found = page.run(CHANGES, customer_mirror=CustomerMirror)
    assert found.mirror_customers.spec.targets[0].mode == "merge"
    with pytest.raises(Unsupported, match="cdc= cannot be run yet"):
        found.mirror_customers()


def test_a_state_store_is_a_value(page: Page) -> None:
    made: list[Any] = []
    page.run(STATE, StateStore=lambda **said: made.append(ematix_flow.StateStore(**said)))
    assert (made[0].kind, made[0].checkpoint_interval_ms) == ("postgres", 60_000)
