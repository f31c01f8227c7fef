"""merge: exact counts, NULL-safe changes, keys column by column, deletes with a brake."""

from __future__ import annotations

from typing import Annotated, Any

import pytest

from ematix_flow import BigInt, Text, natural_key, pk
from ematix_flow.foundation.errors import Brake, DuplicateKeys
from tests.contract.loading import columns, counts, declare, load, pipeline_of
from tests.harness.base import Harness

pytestmark = [pytest.mark.offers("merge"), pytest.mark.proves("{backend}: merge")]


def people() -> Any:
    return declare({"id": Annotated[BigInt, pk()], "name": Text | None, "city": Text | None})


def row(number: int, name: str | None, city: str | None = None) -> dict[str, Any]:
    return {"id": number, "name": name, "city": city}


@pytest.mark.core
def test_merge_counts_what_it_inserts_updates_and_leaves(harness: Harness) -> None:
    table = people()
    load(harness, table, [row(1, "a"), row(2, None), row(3, "c"), row(4, "A")], mode="merge")
    result = load(harness, table, [row(1, "a"), row(2, ""), row(3, None), row(4, "a"), row(5, "e ")], mode="merge")
    assert counts(result) == {"inserted": 1, "updated": 3, "unchanged": 1}
    again = load(harness, table, [row(5, "e"), row(1, "a")], mode="scd1")
    assert counts(again) == {"updated": 1, "unchanged": 1}
    expected = [(1, "a"), (2, ""), (3, None), (4, "a"), (5, "e")]
    assert columns(harness.rows(table.spec()), ("id", "name")) == expected


def test_compare_columns_decide_and_update_columns_limit(harness: Harness) -> None:
    table = people()
    load(harness, table, [row(1, "a", "x"), row(2, "b", "x")], mode="merge")
    rows = [row(1, "a", "moved"), row(2, "changed", "moved")]
    result = load(harness, table, rows, mode="merge", compare_columns=["name"], update_columns=["name"])
    assert counts(result) == {"updated": 1, "unchanged": 1}
    assert columns(harness.rows(table.spec()), ("id", "name", "city")) == [(1, "a", "x"), (2, "changed", "x")]


def test_duplicate_keys_in_a_batch_load_nothing(harness: Harness) -> None:
    table = people()
    load(harness, table, [row(1, "a")], mode="merge")
    with pytest.raises(DuplicateKeys, match=r"(?s)1 key.*3 rows.*id=7.*deduplicate_by\('id'"):
        load(harness, table, [row(7, "x"), row(7, "y"), row(7, "x"), row(1, "z")], mode="merge")
    assert columns(harness.rows(table.spec()), ("id", "name")) == [(1, "a")]


def test_keys_that_may_be_null_match_null(harness: Harness) -> None:
    table = declare(
        {"a": Annotated[Text | None, natural_key()], "b": Annotated[Text | None, natural_key()], "v": BigInt}
    )
    rows = [{"a": None, "b": "x", "v": 1}, {"a": "x", "b": None, "v": 2}, {"a": "", "b": "x", "v": 3}]
    load(harness, table, rows, mode="merge")
    result = load(harness, table, [{**rows[0], "v": 10}, rows[1], rows[2]], mode="merge")
    assert counts(result) == {"updated": 1, "unchanged": 2}
    found = columns(harness.rows(table.spec()), ("a", "b", "v"))
    assert found == columns([{**rows[0], "v": 10}, rows[1], rows[2]], ("a", "b", "v"))


def test_hard_deletes_remove_what_the_source_lost(harness: Harness) -> None:
    table = people()
    load(harness, table, [row(1, "a"), row(2, "b"), row(3, "c")], mode="merge", handle_deletes="hard")
    result = load(harness, table, [row(1, "a"), row(4, "d")], mode="merge", handle_deletes="hard")
    assert counts(result) == {"inserted": 1, "unchanged": 1, "deleted": 2}
    assert columns(harness.rows(table.spec()), ("id",)) == [(1,), (4,)]


def test_soft_deletes_mark_and_come_back(harness: Harness) -> None:
    table = people()
    load(harness, table, [row(1, "a"), row(2, "b")], mode="merge", handle_deletes="soft")
    gone = load(harness, table, [row(1, "a")], mode="merge", handle_deletes="soft")
    assert counts(gone) == {"unchanged": 1, "deleted": 1}
    marked = {item["id"]: item["_deleted_at"] for item in harness.rows(table.spec())}
    assert marked[1] is None
    assert marked[2] is not None
    still = load(harness, table, [row(1, "a")], mode="merge", handle_deletes="soft")
    assert counts(still) == {"unchanged": 1}
    back = load(harness, table, [row(1, "a"), row(2, "b")], mode="merge", handle_deletes="soft")
    assert counts(back) == {"updated": 1, "unchanged": 1}
    assert all(item["_deleted_at"] is None for item in harness.rows(table.spec()))


def test_the_brake_stops_a_load_that_would_delete_too_much(harness: Harness) -> None:
    table = people()
    options = {"mode": "merge", "handle_deletes": "hard"}
    load(harness, table, [row(number, "x") for number in range(120)], **options)
    with pytest.raises(Brake, match=r"(?s)empty.*120.*--accept-deletes 120"):
        load(harness, table, [], **options)
    with pytest.raises(Brake, match=r"(?s)100 of 120 rows \(83 %\).*--accept-deletes 100"):
        load(harness, table, [row(number, "x") for number in range(20)], **options)
    assert len(harness.rows(table.spec())) == 120
    pipeline = pipeline_of(harness, table, [row(number, "x") for number in range(20)], **options)
    assert counts(pipeline.sync(accept_deletes=100)) == {"unchanged": 20, "deleted": 100}
    assert len(harness.rows(table.spec())) == 20
