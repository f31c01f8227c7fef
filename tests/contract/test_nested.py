"""Nested values in JSON columns: arrays of structures, structures and maps arrive whole in every system."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import Annotated, Any

import pytest

from ematix_flow import JSON, JSONB, BigInt, Text, ematix, pk
from ematix_flow.foundation.errors import PlanError
from tests.contract import native
from tests.contract.loading import counts, declare
from tests.harness.base import Harness

AT = datetime(2026, 1, 5, 14, 30, 12, 123456, tzinfo=timezone.utc)
STRIKES = [
    {"strike": 4500.0, "bid": 1.25, "note": 'Grüße "x" \\ \'', "at": AT},
    {"strike": 4600.0, "bid": None, "note": None, "at": AT},
]
SCHEMA = (
    "id BIGINT, strikes ARRAY<STRUCT<strike: DOUBLE, bid: DOUBLE, note: STRING, at: TIMESTAMP>>, "
    "one STRUCT<a: BIGINT, inner: STRUCT<b: ARRAY<INT>>>, named MAP<STRING, DECIMAL(6,2)>, shown ARRAY<STRING>"
)
TOLD = "2026-01-05T14:30:12.123456Z"
AS_JSON = [{**item, "at": TOLD} for item in STRIKES]


def table() -> Any:
    return declare(
        {
            "id": Annotated[BigInt, pk()],
            "strikes": JSONB | None,
            "one": JSONB | None,
            "named": JSON | None,
            "shown": Text | None,
        }
    )


def load(harness: Harness, target: Any, *ids: int, **options: Any) -> Any:
    def source(spark: Any) -> Any:
        from decimal import Decimal

        rows = [(n, STRIKES, (n, ([1, None],)), {"x": Decimal("1.50"), "y": None}, ["a", None]) for n in ids]
        nothing = [(-1, None, None, None, None), (-2, [], (None, None), {}, [])]
        return spark.createDataFrame([*rows, *nothing], SCHEMA)

    decorate = ematix.pipeline(
        target=target,
        target_connection=harness.connection,
        **{"mode": "append", "name": f"nested_{target.__tablename__}", **options},
    )
    return decorate(source).sync()


@pytest.mark.offers("append")
def test_nested_values_arrive_whole(harness: Harness) -> None:
    target = table()
    assert counts(load(harness, target, 1)) == {"inserted": 3}
    found = {row["id"]: row for row in harness.rows(target.spec())}
    if native.is_native():  # whose JSON has no words for what is NULL
        assert [item["strike"] for item in found[1]["strikes"]] == [4500.0, 4600.0]
        return
    assert found[1]["strikes"] == AS_JSON
    assert found[1]["one"] == {"a": 1, "inner": {"b": [1, None]}}
    assert json.loads(found[1]["named"]) == {"x": 1.5, "y": None}
    assert json.loads(found[1]["shown"]) == ["a", None]
    assert [found[-1][name] for name in ("strikes", "one", "named", "shown")] == [None] * 4
    assert (found[-2]["strikes"], found[-2]["one"], json.loads(found[-2]["named"])) == (
        [],
        {"a": None, "inner": None},
        {},
    )


@pytest.mark.offers("merge")
def test_a_document_that_says_the_same_is_unchanged(harness: Harness) -> None:
    target = table()
    load(harness, target, 1, mode="merge")
    assert counts(load(harness, target, 1, 2, mode="merge")) == {"inserted": 1, "unchanged": 3}


@pytest.mark.systems("duckdb")
def test_a_nested_value_for_a_plain_column_is_refused_with_a_hint(harness: Harness) -> None:
    target = declare(
        {
            "id": Annotated[BigInt, pk()],
            "strikes": BigInt | None,
            "one": JSONB | None,
            "named": JSON | None,
            "shown": Text | None,
        }
    )
    with pytest.raises(PlanError) as refused:
        load(harness, target, 1)
    assert refused.value.hint == "declare it JSONB"
