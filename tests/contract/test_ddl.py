"""Tables: created with what a load needs, grown where nothing is lost, and everything else told as drift."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Annotated, Any

import pytest

from ematix_flow import BigInt, Double, Float, Integer, Numeric, SmallInt, String, Text, ematix, natural_key, pk
from ematix_flow.declare.types import TimestampTZ
from ematix_flow.foundation.errors import DriftError, DuplicateKeys
from tests.contract.loading import columns, counts, declare, load, pipeline_of, unique
from tests.harness.base import Harness, canonical

DATABASES = ("postgres", "mariadb", "mysql8", "sqlite", "duckdb")


def versions(*layouts: dict[str, Any]) -> list[Any]:
    """Declarations of one table, one after the other."""
    schema, name = unique("s"), unique("t")
    return [declare(layout, schema=schema, name=name) for layout in layouts]


@pytest.mark.offers("append")
def test_a_first_load_creates_schema_and_table_with_the_columns_of_the_load(harness: Harness) -> None:
    table = declare({"id": Annotated[BigInt, pk()], "name": Text | None})
    before = datetime.now(timezone.utc) - timedelta(seconds=1)
    result = load(harness, table, [{"id": 1, "name": "a"}], mode="append")
    (row,) = harness.rows(table.spec())
    assert list(row) == ["id", "name", "_loaded_at", "_batch_id"]
    assert str(row["_batch_id"]) == result.run_id
    assert before <= canonical(row["_loaded_at"], TimestampTZ()) <= datetime.now(timezone.utc) + timedelta(seconds=1)
    assert any(note.startswith("+ create") for note in result.targets[0].notes)


@pytest.mark.offers("append")
def test_a_table_without_a_primary_key_takes_equal_rows(harness: Harness) -> None:
    table = declare({"name": Text})
    load(harness, table, [{"name": "a"}, {"name": "a"}], mode="append")
    load(harness, table, [{"name": "a"}], mode="append")
    assert columns(harness.rows(table.spec()), ("name",)) == [("a",)] * 3
    load(harness, table, [{"name": "b"}, {"name": "b"}], mode="truncate")
    assert columns(harness.rows(table.spec()), ("name",)) == [("b",)] * 2


@pytest.mark.offers("append")
def test_a_nullable_column_that_is_new_is_added(harness: Harness) -> None:
    old, new = versions({"id": BigInt}, {"id": BigInt, "city": Text | None, "price": Numeric[8, 2] | None})
    load(harness, old, [{"id": 1}], mode="append")
    result = load(harness, new, [{"id": 2, "city": "Bonn", "price": None}], mode="append")
    assert any(note.startswith("+ city Text") for note in result.targets[0].notes)
    assert columns(harness.rows(new.spec()), ("id", "city", "price")) == [(1, None, None), (2, "Bonn", None)]


@pytest.mark.offers("append")
def test_a_wider_type_is_taken_without_losing_a_value(harness: Harness) -> None:
    old, new = versions(
        {"small": SmallInt, "whole": Integer, "single": Float, "short": String[3], "price": Numeric[6, 2]},
        {"small": Integer, "whole": BigInt, "single": Double, "short": String[9], "price": Numeric[12, 4]},
    )
    first = {"small": 2**15 - 1, "whole": 2**31 - 1, "single": 0.5, "short": "abc", "price": Decimal("9999.99")}
    second = {
        "small": 2**31 - 1,
        "whole": 2**63 - 1,
        "single": 0.1,
        "short": "a" * 9,
        "price": Decimal("12345678.0001"),
    }
    load(harness, old, [first], mode="append")
    load(harness, new, [second], mode="append")
    found = harness.rows(new.spec())
    assert [{name: row[name] for name in first} for row in sorted(found, key=lambda row: row["small"])] == [
        first,
        second,
    ]
    assert load(harness, new, [], mode="append").targets[0].notes == ()


@pytest.mark.offers("append")
def test_drift_is_an_error_with_a_readable_diff_and_the_place_of_the_declaration(harness: Harness) -> None:
    schema, name = unique("s"), unique("t")

    @ematix.table(schema=schema, name=name)
    class Before:
        id: BigInt
        amount: Text | None
        dropped: Text | None

    @ematix.table(schema=schema, name=name)
    class After:
        id: BigInt
        amount: Integer | None
        added: BigInt

    load(harness, Before, [{"id": 1, "amount": "x", "dropped": None}], mode="append")
    with pytest.raises(DriftError) as caught:
        load(harness, After, [{"id": 2, "amount": 2, "added": 2}], mode="append")
    text = str(caught.value)
    assert f"{schema}.{name} differs from its declaration" in text
    assert "~ amount is " in text
    assert "declared is Integer" in text
    assert "+ added BigInt NOT NULL is declared and missing" in text
    assert "- dropped " in text
    assert "test_ddl.py:" in text
    assert 'on_drift="warn"' in str(caught.value.hint)
    assert caught.value.exit_code == 3
    assert columns(harness.rows(Before.spec()), ("id", "amount")) == [(1, "x")]


@pytest.mark.offers("append")
def test_on_drift_warn_loads_what_still_fits_and_says_so(harness: Harness) -> None:
    old, new = versions(
        {"id": BigInt, "name": Text | None, "more": Text | None}, {"id": Integer, "name": String[5] | None}
    )
    load(harness, old, [{"id": 1, "name": "long name", "more": "m"}], mode="append")
    with pytest.raises(DriftError):
        load(harness, new, [{"id": 2, "name": "b"}], mode="append")
    result = load(harness, new, [{"id": 2, "name": "b"}], mode="append", on_drift="warn")
    assert any("drift: - more" in note for note in result.targets[0].notes)
    found = [{"more": None, **row} for row in harness.rows(old.spec())]
    assert columns(found, ("id", "name", "more")) == [(1, "long name", "m"), (2, "b", None)]


@pytest.mark.offers("append")
def test_on_drift_warn_refuses_what_cannot_be_loaded(harness: Harness) -> None:
    old, new = versions({"id": BigInt}, {"id": Text})
    load(harness, old, [{"id": 1}], mode="append")
    with pytest.raises(DriftError) as caught:
        load(harness, new, [{"id": "x"}], mode="append", on_drift="warn")
    assert 'on_drift="evolve"' in str(caught.value.hint)
    assert len(harness.rows(old.spec())) == 1


@pytest.mark.offers("append")
def test_on_drift_evolve_mends_the_table(harness: Harness) -> None:
    old, new = versions({"id": BigInt, "must": Text}, {"id": BigInt, "added": BigInt})
    load(harness, old, [{"id": 1, "must": "x"}], mode="append")
    with pytest.raises(DriftError, match=r"must .* NOT NULL"):
        load(harness, new, [{"id": 2, "added": 7}], mode="append")
    load(harness, new, [{"id": 2, "added": 7}], mode="append", on_drift="evolve")
    found = [{"must": None, "added": None, **row} for row in harness.rows(new.spec())]
    assert columns(found, ("id", "must", "added")) == [(1, "x", None), (2, None, 7)]


@pytest.mark.systems(*DATABASES)
def test_natural_keys_and_primary_keys_are_kept_by_the_database(harness: Any) -> None:
    table = declare({"id": Annotated[BigInt, pk()], "code": Annotated[String[20], natural_key()], "v": BigInt | None})
    load(harness, table, [{"id": 1, "code": "a", "v": 1}], mode="append")
    for row in ({"id": 1, "code": "b", "v": 2}, {"id": 2, "code": "a", "v": 2}):
        with pytest.raises(DuplicateKeys) as caught:
            load(harness, table, [{"id": 9, "code": "z", "v": 9}, row], mode="append")
        assert caught.value.hint
    relation = harness.relation(table.spec().schema, table.spec().name)
    copied = f"SELECT 3, code, v, {', '.join(map(harness.quote, ('_loaded_at', '_batch_id')))} FROM {relation}"
    with pytest.raises(Exception, match=r"(?i)unique|duplicate"):
        harness.execute(f"INSERT INTO {relation} {copied}")
    assert columns(harness.rows(table.spec()), ("id", "code")) == [(1, "a")]


@pytest.mark.offers("append")
def test_a_preview_and_a_dry_run_create_nothing(harness: Harness) -> None:
    table = declare({"id": BigInt})
    pipeline = pipeline_of(harness, table, [{"id": 1}], mode="append")
    assert pipeline.preview().targets[0].exists is False
    pipeline.dry_run()
    assert pipeline.preview().targets[0].exists is False
    pipeline.sync()
    assert pipeline.preview().targets[0].exists is True


@pytest.mark.systems("postgres", "mysql8", "sqlite", "duckdb")
def test_a_dry_run_of_a_table_that_will_change_counts_what_it_can_and_changes_nothing(harness: Harness) -> None:
    old, new = versions(
        {"id": Annotated[BigInt, pk()], "size": Integer}, {"id": Annotated[BigInt, pk()], "size": BigInt, "city": Text | None}
    )  # fmt: skip
    load(harness, old, [{"id": 1, "size": 1}, {"id": 2, "size": 2}], mode="merge")
    before = harness.rows(old.spec())
    rows = [
        {"id": 1, "size": 1, "city": None},
        {"id": 2, "size": 2, "city": "Ulm"},
        {"id": 3, "size": 2**40, "city": None},
    ]
    rehearsed = pipeline_of(harness, new, rows, mode="merge").dry_run().targets[0]
    assert any(note.startswith("+ city Text") for note in rehearsed.notes)
    told = (rehearsed.rows_read, rehearsed.rows_inserted, rehearsed.rows_updated, rehearsed.rows_unchanged)
    counted = harness.backend != "mysql"  # where a changed table stays changed, only the rows are looked at
    assert told == ((3, 1, 1, 1) if counted else (3, 0, 0, 0))
    assert any("once the table has changed" in note for note in rehearsed.notes) != counted
    assert harness.rows(old.spec()) == before
    assert counts(load(harness, new, rows, mode="merge")) == {"inserted": 1, "updated": 1, "unchanged": 1}
