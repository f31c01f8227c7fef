"""scd2 by event time: any order, repetition and batching of the same events gives the same table."""

from __future__ import annotations

import random
from datetime import timedelta
from decimal import Decimal
from typing import Annotated, Any

import pytest

from ematix_flow import BigInt, Numeric, String, Text, TimestampTZ, ematix, pk
from ematix_flow.foundation.errors import Brake, NullViolation
from tests.contract.loading import columns, counts, day, declare, load, unique
from tests.contract.oracle import Observation, versions
from tests.harness.base import Harness, canonical

pytestmark = [pytest.mark.offers("scd2"), pytest.mark.proves("{backend}: scd2")]
OPTIONS: dict[str, Any] = {"mode": "scd2", "compare_columns": ["value"], "event_timestamp_column": "at"}


def history() -> Any:
    return declare({"id": Annotated[BigInt, pk()], "value": Text | None, "note": Text | None, "at": TimestampTZ})


def row(event: Observation) -> dict[str, Any]:
    return {"id": event.key, "value": event.value, "note": event.note, "at": event.at}


def timed(harness: Harness, table: Any) -> list[dict[str, Any]]:
    rows = [
        {**item, **{name: canonical(item[name], TimestampTZ()) for name in ("valid_from", "valid_to")}}
        for item in harness.rows(table.spec())
    ]
    assert all(bool(item["is_current"]) == (item["valid_to"] is None) for item in rows)
    return rows


def found(harness: Harness, table: Any) -> list[tuple[Any, ...]]:
    return columns(timed(harness, table), ("id", "value", "valid_from", "valid_to"))


def expected(events: list[Observation]) -> list[tuple[Any, ...]]:
    made = [dict(zip(("id", "value", "valid_from", "valid_to"), item, strict=True)) for item in versions(events)]
    return columns(made, ("id", "value", "valid_from", "valid_to"))


def test_a_late_event_splits_the_interval_it_belongs_to(harness: Harness) -> None:
    table = history()
    events = [Observation(1, day(1), "a"), Observation(1, day(10), "a"), Observation(1, day(5), "b")]
    load(harness, table, [row(events[0])], **OPTIONS)
    assert counts(load(harness, table, [row(events[1])], **OPTIONS)).get("inserted", 0) == 0
    load(harness, table, [row(events[2])], **OPTIONS)
    # The event of day 10 changed nothing when it came; it must be there again after day 5.
    assert found(harness, table) == expected(events)
    assert len(found(harness, table)) == 3


def test_an_event_time_that_only_the_source_has_becomes_valid_from(harness: Harness) -> None:
    """gaps H1"""
    given, schema, name = {"id": Annotated[BigInt, pk()], "value": Text | None}, unique("s"), unique("t")
    table, source = declare(given, schema=schema, name=name), declare({**given, "at": TimestampTZ}, name=name)
    options = {"mode": "scd2", "event_timestamp_column": "at"}
    for batch in ([(day(1), "a"), (day(10), "a")], [(day(5), "b")]):
        rows = [{"id": 1, "value": value, "at": at} for at, value in batch]
        harness.seed(source.spec(), rows)
        ematix.pipeline(target=table, target_connection=harness.connection, name=name, **options)(
            lambda: f"SELECT * FROM {harness.reference(source.spec())}"
        ).sync()
    assert found(harness, table) == [(1, "a", day(1), day(5)), (1, "a", day(10), None), (1, "b", day(5), day(10))]
    assert "at" not in harness.rows(table.spec())[0]


@pytest.mark.parametrize("seed", [1, 2])
def test_order_repetition_and_batching_do_not_matter(harness: Harness, seed: int) -> None:
    chance = random.Random(seed)
    events = [
        Observation(key, day(1 + number), chance.choice(["a", "b", None, ""]))
        for key in range(4)
        for number in chance.sample(range(25), 6)
    ]
    shuffled = events + chance.sample(events, 8)
    chance.shuffle(shuffled)
    cuts = sorted(chance.sample(range(1, len(shuffled)), 2))
    table = history()
    for low, high in zip([0, *cuts], [*cuts, len(shuffled)], strict=True):
        load(harness, table, [row(event) for event in shuffled[low:high]], **OPTIONS)
    assert found(harness, table) == expected(events)


def test_equal_timestamps_resolve_the_same_way_in_any_order(harness: Harness) -> None:
    one, other = Observation(1, day(3), "x"), Observation(1, day(3), "y")
    first, second = history(), history()
    for event in (one, other):
        load(harness, first, [row(event)], **OPTIONS)
    load(harness, second, [row(other), row(one)], **OPTIONS)
    assert found(harness, first) == found(harness, second)
    assert len(found(harness, first)) == 1


def test_columns_that_are_not_compared_are_refreshed_in_place(harness: Harness) -> None:
    table = history()
    load(harness, table, [row(Observation(1, day(2), "a", "new"))], **OPTIONS)
    load(harness, table, [row(Observation(1, day(1), "a", "old"))], **OPTIONS)
    rows = harness.rows(table.spec())
    assert columns(rows, ("value", "note")) == [("a", "new")]
    assert found(harness, table) == [(1, "a", day(1), None)]


def test_a_ttl_ends_a_version_and_does_not_flap(harness: Harness) -> None:
    table = history()
    events = [Observation(1, day(1), "a"), Observation(2, day(1), "b"), Observation(2, day(2), "c")]
    for _ in range(2):
        load(harness, table, [row(event) for event in events], **OPTIONS, ttl=timedelta(days=3))
        assert found(harness, table) == [(1, "a", day(1), day(4)), (2, "b", day(1), day(2)), (2, "c", day(2), day(5))]


def test_the_brake_counts_expired_versions_that_hard_deletes_would_remove(harness: Harness) -> None:
    table = history()
    options = {**OPTIONS, "ttl": timedelta(days=1), "handle_deletes": "hard"}
    load(harness, table, [row(Observation(1, day(1), "a")), row(Observation(2, day(1), "b"))], **options)
    expired = [(1, "a", day(1), day(2)), (2, "b", day(1), day(2))]
    assert found(harness, table) == expired
    with pytest.raises(Brake, match=r"(?s)the source is empty, and 2 row\(s\).*--accept-deletes 2"):
        load(harness, table, [], **options)
    assert found(harness, table) == expired
    load(harness, table, [row(Observation(1, day(1), "a"))], **options)
    assert found(harness, table) == expired[:1]


def test_columns_that_are_added_or_widened_between_events_are_observed_as_well(harness: Harness) -> None:
    key, grown_columns = {"id": Annotated[BigInt, pk()], "at": TimestampTZ}, ("value", "size", "city")
    small = {**key, "value": String[3] | None, "size": Numeric[4, 1] | None}
    large = {**key, "value": String[9] | None, "size": Numeric[12, 3] | None, "city": Text | None}
    schema, name = unique("s"), unique("t")
    old, new = declare(small, schema=schema, name=name), declare(large, schema=schema, name=name)

    def event(number: int, value: str, size: str, city: str | None = None) -> dict[str, Any]:
        return {"id": 1, "at": day(number), "value": value, "size": Decimal(size), "city": city}

    def take(table: Any, events: list[dict[str, Any]]) -> Any:
        compared = [name for name in grown_columns if name in table.spec().column_names]
        return load(harness, table, events, **{**OPTIONS, "compare_columns": compared})

    def text(item: dict[str, Any]) -> str:
        return f"{item['value']} {float(item['size'])} {item['city']}"

    before = [event(1, "a", "1.5"), event(10, "a", "1.5"), event(20, "b", "2.5")]
    late = [event(15, "much more", "123456789.125", "Ulm"), event(5, "a", "1.5", "Bonn")]
    take(old, before)
    again = take(new, [*late, *before[1:]])
    assert counts(again)["unchanged"] == 2, "an event that comes again with the new column empty is known"
    told = versions(Observation(1, item["at"], text(item)) for item in (*before, *late))
    assert sorted((1, text(row), row["valid_from"], row["valid_to"]) for row in timed(harness, new)) == sorted(told)


def test_an_event_without_a_time_is_refused(harness: Harness) -> None:
    table = declare(
        {"id": Annotated[BigInt, pk()], "value": Text | None, "note": Text | None, "at": TimestampTZ | None}
    )
    with pytest.raises(NullViolation, match="at"):
        load(harness, table, [{"id": 1, "value": "a", "note": None, "at": None}], **OPTIONS)
