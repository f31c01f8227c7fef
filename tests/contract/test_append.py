"""append: every row is inserted; an incremental append neither loses nor doubles a row."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any

import pytest

from ematix_flow import BigInt, Text, TimestampTZ, pk
from tests.contract.loading import columns, counts, day, declare, load
from tests.harness.base import Harness

pytestmark = [pytest.mark.offers("append"), pytest.mark.proves("{backend}: append")]


def keyed() -> Any:
    return declare({"id": Annotated[BigInt, pk()], "name": Text | None, "at": TimestampTZ | None})


def keyless() -> Any:
    return declare({"name": Text | None, "at": TimestampTZ | None})


@pytest.mark.core
def test_append_keeps_every_row_and_stamps_the_batch(harness: Harness) -> None:
    table = keyless()
    rows = [{"name": "a", "at": day(1)}, {"name": "a", "at": day(1)}, {"name": None, "at": None}]
    first = load(harness, table, rows, mode="append")
    second = load(harness, table, rows[:1], mode="append")
    assert (counts(first), counts(second)) == ({"inserted": 3}, {"inserted": 1})
    found = harness.rows(table.spec())
    assert columns(found, ("name",)) == [(None,), ("a",), ("a",), ("a",)]
    assert {str(row["_batch_id"]) for row in found} == {first.run_id, second.run_id}
    assert all(row["_loaded_at"] is not None for row in found)


@pytest.mark.parametrize("make", [keyed, keyless], ids=["with a key", "without a key"])
def test_a_row_that_arrives_late_at_the_watermark_is_loaded_once(harness: Harness, make: Any) -> None:
    table = make()
    names = table.spec().column_names

    def rows(*items: tuple[Any, ...]) -> list[dict[str, Any]]:
        return [dict(zip(names, item[-len(names) :], strict=True)) for item in items]

    one, two, late, new, unknown = (
        (1, "one", day(1)),
        (2, "two", day(2)),
        (3, "late", day(2)),
        (4, "new", day(3)),
        (5, "?", None),
    )
    options = {"mode": "append", "incremental": True, "watermark_column": "at"}
    load(harness, table, rows(one, two, unknown), **options)
    result = load(harness, table, rows(one, two, late, new, unknown), **options)
    assert counts(result)["inserted"] == 2
    assert "no watermark" in " ".join(result.targets[0].notes)
    again = load(harness, table, rows(one, two, late, new, unknown), **options)
    assert counts(again).get("inserted", 0) == 0
    assert columns(harness.rows(table.spec()), ("name",)) == [("?",), ("late",), ("new",), ("one",), ("two",)]


def test_a_lookback_finds_rows_older_than_the_watermark(harness: Harness) -> None:
    table = keyed()
    options = {"mode": "append", "watermark_column": "at", "watermark_lookback": timedelta(days=2)}
    load(harness, table, [{"id": 1, "name": "a", "at": day(10)}], **options)
    rows = [
        {"id": 1, "name": "a", "at": day(10)},
        {"id": 2, "name": "late", "at": day(9)},
        {"id": 3, "name": "too late", "at": day(1)},
    ]
    assert counts(load(harness, table, rows, **options))["inserted"] == 1
    assert columns(harness.rows(table.spec()), ("id",)) == [(1,), (2,)]


def test_an_empty_source_loads_nothing_and_keeps_the_watermark(harness: Harness) -> None:
    table = keyed()
    options = {"mode": "append", "watermark_column": "at"}
    first = load(harness, table, [{"id": 1, "name": "a", "at": day(5)}], **options)
    empty = load(harness, table, [], **options)
    assert empty.targets[0].watermark == first.targets[0].watermark is not None
    assert len(harness.rows(table.spec())) == 1
