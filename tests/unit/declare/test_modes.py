"""Modes become strategies: which keys, columns and options each of them takes."""

from __future__ import annotations

import warnings
from datetime import timedelta
from typing import Annotated, Any

import pytest

from ematix_flow import BigInt, String, Text, TimestampTZ, ematix, natural_key, pk
from ematix_flow.declare.strategy import Append, Deletes, Merge, Scd2, Truncate
from ematix_flow.foundation.errors import FlowError


@ematix.table(schema="analytics")
class Customers:
    customer_id: Annotated[BigInt, pk()]
    email: String[256] | None
    name: Text | None
    updated_at: TimestampTZ


@ematix.table(schema="analytics")
class Versions:
    version_id: Annotated[BigInt, pk()]
    customer_id: Annotated[BigInt, natural_key()]
    name: Text | None


@ematix.table(schema="analytics")
class Chosen:
    __merge_keys__ = ("name",)

    chosen_id: Annotated[BigInt, pk()]
    email: Annotated[Text, natural_key()]
    name: Text


@ematix.table(schema="raw")
class Keyless:
    name: Text


def declared(**options: Any) -> Any:
    def load(conn: Any) -> str:
        return "SELECT 1"

    return ematix.pipeline(**options)(load)


def strategy_of(**options: Any) -> Any:
    return declared(target=Customers, **options).spec.loads[0].strategy


# Modes ---------------------------------------------------------------------------------------------------------------


def test_modes_become_strategies() -> None:
    others = ("email", "name", "updated_at")
    assert strategy_of(mode="append") == Append()
    assert strategy_of(mode="truncate") == Truncate()
    assert strategy_of(mode="merge") == Merge(("customer_id",), others, others)
    assert strategy_of(mode="scd1") == strategy_of(mode="merge")
    assert strategy_of(mode="scd2") == Scd2(("customer_id",), others)


def test_merge_compares_what_it_updates_unless_configured_otherwise() -> None:
    everything = ("email", "name", "updated_at")
    assert strategy_of(mode="merge", update_columns=["name"]) == Merge(("customer_id",), ("name",), ("name",))
    assert strategy_of(mode="merge", compare_columns=["name"]) == Merge(("customer_id",), ("name",), everything)


def test_event_time_is_not_compared() -> None:
    assert strategy_of(mode="scd2", event_timestamp_column="updated_at").compare == ("email", "name")


def test_a_lifetime_is_a_timedelta_or_seconds_in_both_spellings() -> None:
    month = timedelta(days=30)
    for options in ({"ttl": month}, {"ttl": 2_592_000}, {"ttl_seconds": 86_400 * 30}):
        assert strategy_of(mode="scd2", **options).ttl == month


@pytest.mark.parametrize("mode", ["merge", "scd2"])
@pytest.mark.parametrize("way", ["hard", "soft"])
def test_deletes_go_with_merge_and_scd2(mode: str, way: str) -> None:
    assert strategy_of(mode=mode, handle_deletes=way).deletes is Deletes(way)


def test_an_unknown_mode_is_not_implemented_and_names_the_nearest() -> None:
    with pytest.raises(NotImplementedError, match="did you mean 'merge'"):
        declared(target=Customers, mode="mrege")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"mode": "append", "ttl_seconds": 3}, "ttl goes with mode='scd2'"),
        ({"mode": "merge", "event_timestamp_column": "updated_at"}, "event_timestamp_column goes with mode='scd2'"),
        ({"mode": "scd2", "ttl": "soon"}, "ttl takes a timedelta or seconds"),
        ({"mode": "scd2", "event_timestamp_column": "name"}, "must be a date or timestamp"),
        ({"mode": "append", "handle_deletes": "hard"}, "handle_deletes goes with merge and scd2"),
        ({"mode": "truncate", "handle_deletes": "soft"}, "handle_deletes goes with merge and scd2"),
        ({"mode": "merge", "handle_deletes": "gently"}, 'use "hard" or "soft"'),
        ({"mode": "merge", "keys": ("id",)}, "keys names 'id'"),
        ({"mode": "merge", "compare_columns": ["mail"]}, "did you mean 'email'"),
        ({"mode": "append", "on_drift": "ignore"}, "on_drift='ignore' is not known"),
        ({"mode": "append", "force_path": "fast"}, "force_path='fast' is not known"),
        ({"mode": "append", "max_delete_fraction": 2}, "share between 0 and 1"),
        ({"mode": "append", "source_table": "customers"}, "must be schema.table"),
        ({"mode": "append", "timezone": "Mars/Olympus"}, "not a known time zone"),
        ({"mode": "append", "retry": {"attempts": 3}}, "retry does not know 'attempts'"),
        ({"mode": "append", "retry": {"max_attempts": 0}}, "max_attempts"),
        ({"mode": "append", "transforms_pre": ["name IS NOT NULL"]}, "transforms_pre does not take"),
        ({"mode": "append", "transforms_post": [3]}, "transforms_post does not take 3"),
    ],
)
def test_what_does_not_go_together_is_a_value_error_with_the_users_line(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said) as caught:
        declared(target=Customers, **options)
    assert isinstance(caught.value, FlowError)
    assert caught.value.where is not None
    assert caught.value.where.file == __file__
    assert caught.value.where.text == "return ematix.pipeline(**options)(load)"


# Incremental reads ---------------------------------------------------------------------------------------------------


def test_both_spellings_of_incremental_mean_the_same() -> None:
    documented = declared(target=Customers, mode="append", incremental=True, watermark_column="updated_at").spec
    shipped = declared(target=Customers, mode="append", incremental_column="updated_at").spec
    assert documented.incremental == shipped.incremental
    assert documented.incremental is not None
    assert documented.incremental.column == "updated_at"


def test_a_lookback_is_kept_and_incremental_false_turns_it_off() -> None:
    options: dict[str, Any] = {"target": Customers, "mode": "merge", "watermark_column": "updated_at"}
    kept = declared(**options, watermark_lookback=timedelta(hours=2)).spec.incremental
    assert kept is not None
    assert kept.lookback == timedelta(hours=2)
    assert declared(**options, incremental=False).spec.incremental is None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"mode": "append", "incremental": True}, "needs watermark_column="),
        ({"mode": "append", "watermark_lookback": 60}, "watermark_lookback needs watermark_column="),
        ({"mode": "append", "watermark_column": "updated"}, "did you mean 'updated_at'"),
        ({"mode": "truncate", "watermark_column": "updated_at"}, "would truncate rows"),
        ({"mode": "merge", "watermark_column": "updated_at", "handle_deletes": "hard"}, "needs the full source"),
    ],
)
def test_an_incremental_read_that_would_lose_rows_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        declared(target=Customers, **options)


# Keys ----------------------------------------------------------------------------------------------------------------


def keys_of(table: Any, **options: Any) -> tuple[tuple[str, ...], str]:
    load = declared(target=table, mode="merge", **options).spec.loads[0]
    return load.strategy.keys, load.keys_reason


def test_keys_come_from_the_pipeline_then_the_table_then_the_natural_key_then_the_primary_key() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert keys_of(Chosen, keys=("email",)) == (("email",), "keys= on the pipeline")
        assert keys_of(Customers) == (("customer_id",), "pk()")
        warnings.simplefilter("ignore")
        assert keys_of(Chosen) == (("name",), "__merge_keys__ on the table")
        assert keys_of(Versions) == (("customer_id",), "first natural_key() group")


@pytest.mark.parametrize("table", [Chosen, Versions])
@pytest.mark.parametrize("mode", ["merge", "scd2"])
def test_keys_that_are_not_the_primary_key_warn_at_the_users_line(table: Any, mode: str) -> None:
    decorate = ematix.pipeline(target=table, mode=mode)
    with pytest.warns(UserWarning, match="pass keys= to silence this") as caught:
        decorate(lambda conn: "SELECT 1")
    line = test_keys_that_are_not_the_primary_key_warn_at_the_users_line.__code__.co_firstlineno + 3
    assert [(item.filename, item.lineno) for item in caught] == [(__file__, line)]


def test_append_asks_for_no_key_and_gives_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert declared(target=Versions, mode="append").spec.loads[0].keys_reason == ""
        assert declared(target=Keyless, mode="truncate").spec.loads[0].keys_reason == ""


@pytest.mark.parametrize("mode", ["merge", "scd2"])
def test_a_table_without_any_key_cannot_be_merged(mode: str) -> None:
    with pytest.raises(ValueError, match=r"raw\.keyless has no key to merge on"):
        declared(target=Keyless, mode=mode)


def test_scd2_needs_a_column_to_compare() -> None:
    with pytest.raises(ValueError, match="no column to compare"):
        declared(target=Keyless, mode="scd2", keys=("name",))
