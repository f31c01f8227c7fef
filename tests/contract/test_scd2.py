"""scd2 by processing time: versions, refresh in place, deletes, ttl that does not flap."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any

import pytest

from ematix_flow import BigInt, Text, pk
from ematix_flow.foundation.errors import Brake, DuplicateKeys
from tests.contract.loading import columns, counts, declare, load
from tests.harness.base import Harness

pytestmark = [pytest.mark.offers("scd2"), pytest.mark.proves("{backend}: scd2")]
SHOWN = ("id", "name", "note", "is_current")


def people() -> Any:
    return declare({"id": Annotated[BigInt, pk()], "name": Text | None, "note": Text | None})


def row(number: int, name: str | None, note: str | None = None) -> dict[str, Any]:
    return {"id": number, "name": name, "note": note}


def shown(harness: Harness, table: Any) -> list[tuple[Any, ...]]:
    found = [{**item, "is_current": bool(item["is_current"])} for item in harness.rows(table.spec())]
    return columns(found, SHOWN)


@pytest.mark.core
def test_a_change_closes_the_old_version_where_the_new_one_begins(harness: Harness) -> None:
    table = people()
    options = {"mode": "scd2", "compare_columns": ["name"]}
    assert counts(load(harness, table, [row(1, "a"), row(2, None)], **options)) == {"inserted": 2}
    result = load(harness, table, [row(1, "a", "noted"), row(2, ""), row(3, "c")], **options)
    assert counts(result) == {"inserted": 2, "updated": 1, "closed": 1}
    expected = [(1, "a", "noted", True), (2, None, None, False), (2, "", None, True), (3, "c", None, True)]
    assert shown(harness, table) == sorted(expected, key=lambda item: (item[0], item[1] is not None))
    two = {bool(item["is_current"]): item for item in harness.rows(table.spec()) if item["id"] == 2}
    assert two[False]["valid_to"] == two[True]["valid_from"] is not None
    assert two[True]["valid_to"] is None
    assert bytes(two[True]["row_hash"]) != bytes(two[False]["row_hash"])
    assert counts(load(harness, table, [row(1, "a", "noted"), row(2, ""), row(3, "c")], **options)) == {"unchanged": 3}


def test_a_key_that_is_gone_is_closed_and_comes_back_as_a_new_version(harness: Harness) -> None:
    table = people()
    options = {"mode": "scd2", "handle_deletes": "soft"}
    load(harness, table, [row(1, "a"), row(2, "b")], **options)
    assert counts(load(harness, table, [row(1, "a")], **options)) == {"unchanged": 1, "closed": 1}
    assert counts(load(harness, table, [row(1, "a")], **options)) == {"unchanged": 1}
    assert counts(load(harness, table, [row(1, "a"), row(2, "b")], **options)) == {"inserted": 1, "unchanged": 1}
    assert shown(harness, table) == [(1, "a", None, True), (2, "b", None, False), (2, "b", None, True)]


def test_hard_deletes_remove_every_version_of_the_key(harness: Harness) -> None:
    table = people()
    options = {"mode": "scd2", "handle_deletes": "hard"}
    load(harness, table, [row(1, "a"), row(2, "b")], **options)
    load(harness, table, [row(1, "a"), row(2, "b2")], **options)
    assert counts(load(harness, table, [row(1, "a")], **options)) == {"unchanged": 1, "deleted": 2}
    assert shown(harness, table) == [(1, "a", None, True)]
    with pytest.raises(Brake, match="empty"):
        load(harness, table, [], **options)


def test_the_brake_counts_expired_versions_that_hard_deletes_would_remove(harness: Harness) -> None:
    table = people()
    options = {"mode": "scd2", "handle_deletes": "hard", "ttl": timedelta(microseconds=1)}
    for _ in range(2):
        load(harness, table, [row(1, "a"), row(2, "b")], **options)
    expired = [(1, "a", None, False), (2, "b", None, False)]
    assert shown(harness, table) == expired
    with pytest.raises(Brake, match=r"(?s)the source is empty, and 2 row\(s\).*--accept-deletes 2"):
        load(harness, table, [], **options)
    assert shown(harness, table) == expired
    assert counts(load(harness, table, [row(1, "a")], **options))["deleted"] == 1
    assert shown(harness, table) == expired[:1]


def test_a_version_that_outlives_its_ttl_is_closed_and_does_not_flap(harness: Harness) -> None:
    table = people()
    options = {"mode": "scd2", "ttl": timedelta(microseconds=1)}
    load(harness, table, [row(1, "a")], **options)
    expired = load(harness, table, [row(1, "a")], **options)
    assert counts(expired).get("closed") == 1
    again = load(harness, table, [row(1, "a")], **options)
    assert counts(again).get("inserted", 0) == 0
    assert shown(harness, table) == [(1, "a", None, False)]
    changed = load(harness, table, [row(1, "b")], **options)
    assert counts(changed)["inserted"] == 1


def test_duplicate_keys_in_a_batch_load_nothing(harness: Harness) -> None:
    table = people()
    with pytest.raises(DuplicateKeys):
        load(harness, table, [row(1, "a"), row(1, "b")], mode="scd2")
    assert harness.rows(table.spec()) == []
